// Writes the protobuf form, message by message; package_spec_reader.cc reads it in the same order.
#include "baton/unit/apple/mlpackage/package_spec.h"

#include <fmt/format.h>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/unit/apple/mlpackage/protobuf.h"
#include "baton/unit/apple/mlpackage/type_codes.h"

namespace baton::apple {
namespace {

uint32_t mil_code(MilType type) {
  for (const TypeCode& code : kTypeCodes) {
    if (code.type == type) return code.mil;
  }
  return 0;
}

ProtoWriter value_type(const MilTensorType& type) {
  ProtoWriter tensor;
  tensor.number(1, mil_code(type.type));
  tensor.integer(2, static_cast<int64_t>(type.dims.size()));
  for (const int64_t dim : type.dims) {
    ProtoWriter constant, dimension;
    constant.integer(1, dim);
    dimension.message(1, constant);
    tensor.message(3, dimension);
  }
  ProtoWriter out;
  out.message(1, tensor);
  return out;
}

ProtoWriter tensor_value(const MilLiteral& literal) {
  ProtoWriter values, tensor;
  switch (literal.type.type) {
    case MilType::kString:
      for (const std::string& text : literal.strings) values.text(1, text);
      tensor.message(4, values);
      break;
    case MilType::kFp16: {
      std::string bytes(2 * literal.numbers.size(), '\0');
      for (size_t i = 0; i < literal.numbers.size(); ++i)
        store_as<uint16_t>(bytes.data() + 2 * i, f32_to_f16(static_cast<float>(literal.numbers[i])));
      values.text(1, bytes);
      tensor.message(7, values);
      break;
    }
    default: {  // int32 and bool
      const std::vector<int64_t> integers(literal.numbers.begin(), literal.numbers.end());
      values.packed(1, integers);
      tensor.message(literal.type.type == MilType::kBool ? 3 : 2, values);
    }
  }
  return tensor;
}

ProtoWriter value_of(const MilLiteral& literal) {
  ProtoWriter out;
  out.message(2, value_type(literal.type));
  if (literal.in_file) {
    ProtoWriter place;
    place.text(1, literal.path);
    place.number(2, literal.offset);
    out.message(5, place);
  } else {
    ProtoWriter immediate;
    immediate.message(1, tensor_value(literal));
    out.message(3, immediate);
  }
  return out;
}

ProtoWriter named_type(const std::string& name, const MilTensorType& type) {
  ProtoWriter out;
  out.text(1, name);
  out.message(2, value_type(type));
  return out;
}

ProtoWriter operation(const MilStatement& statement) {
  ProtoWriter out;
  out.text(1, statement.op);
  for (const MilArgument& argument : statement.arguments) {
    ProtoWriter bindings;
    for (const std::string& name : argument.names) {
      ProtoWriter binding;
      binding.text(1, name);
      bindings.message(1, binding);
    }
    out.entry(2, argument.parameter, bindings);
  }
  out.message(3, named_type(statement.name, statement.type));
  for (const MilArgument& attribute : statement.attributes)
    out.entry(5, attribute.parameter, value_of(attribute.literal));
  return out;
}

ProtoWriter feature(const PackageFeature& feature) {
  ProtoWriter array, type, out;
  array.packed(1, feature.type.dims);
  for (const TypeCode& code : kTypeCodes) {
    if (code.type == feature.type.type) array.number(2, code.feature);
  }
  type.message(5, array);
  out.text(1, feature.name);
  out.text(2, feature.description);
  out.message(3, type);
  return out;
}

}  // namespace

std::string encode_spec(const PackageSpec& spec) {
  ProtoWriter block;
  for (const std::string& output : spec.main.outputs) block.text(2, output);
  for (const MilStatement& statement : spec.main.statements) block.message(3, operation(statement));

  ProtoWriter function;
  for (const MilPort& input : spec.main.inputs) function.message(1, named_type(input.name, input.type));
  function.text(2, spec.main.opset);
  function.entry(3, spec.main.opset, block);

  ProtoWriter program;
  program.number(1, 1);
  program.entry(2, "main", function);

  ProtoWriter metadata;
  metadata.text(1, spec.description);
  metadata.text(3, "baton");
  for (const auto& [key, value] : spec.metadata) {
    ProtoWriter item;
    item.text(1, key);
    item.text(2, value);
    metadata.message(100, item);
  }
  ProtoWriter description;
  for (const PackageFeature& input : spec.inputs) description.message(1, feature(input));
  for (const PackageFeature& output : spec.outputs) description.message(10, feature(output));
  description.message(100, metadata);

  ProtoWriter model;
  model.integer(1, spec.specification_version);
  model.message(2, description);
  model.message(502, program);
  return std::move(model).take();
}

}  // namespace baton::apple
