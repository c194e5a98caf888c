// Reads the protobuf form, message by message.
#include <fmt/format.h>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/unit/apple/mlpackage/package_spec.h"
#include "baton/unit/apple/mlpackage/protobuf.h"
#include "baton/unit/apple/mlpackage/type_codes.h"

namespace baton::apple {
namespace {

// Calls function(field) for each; stops at the first error.
template <class Function>
Status each_field(std::span<const std::byte> bytes, const Function& function) {
  ProtoReader reader(bytes);
  while (!reader.done()) {
    BATON_TRY(const ProtoField field, reader.next());
    BATON_OK(function(field));
  }
  return {};
}

std::string text_of(const ProtoField& field) { return std::string(as_text(field.bytes)); }

Result<int64_t> read_dimension(std::span<const std::byte> bytes) {
  int64_t size = -1;
  BATON_OK(each_field(bytes, [&](const ProtoField& field) -> Status {
    if (field.field != 1) return fail(Code::kUnsupported, "a dimension that is not a number");
    return each_field(field.bytes, [&](const ProtoField& inner) -> Status {
      if (inner.field == 1) size = static_cast<int64_t>(inner.number);
      return {};
    });
  }));
  if (size < 1) return fail(Code::kUnsupported, fmt::format("a dimension of {}", size));
  return size;
}

Result<MilTensorType> read_type(std::span<const std::byte> bytes) {
  MilTensorType type;
  bool known = false;
  BATON_OK(each_field(bytes, [&](const ProtoField& outer) -> Status {
    if (outer.field != 1) return fail(Code::kUnsupported, fmt::format("a value type of kind {}; tensor", outer.field));
    return each_field(outer.bytes, [&](const ProtoField& field) -> Status {
      if (field.field == 1) {
        for (const TypeCode& code : kTypeCodes) {
          if (code.mil != field.number) continue;
          type.type = code.type;
          known = true;
        }
      }
      if (field.field != 3) return {};
      if (type.dims.size() >= 16) return fail(Code::kUnsupported, "a tensor of more than 16 dims");
      BATON_TRY(const int64_t size, read_dimension(field.bytes));
      type.dims.push_back(size);
      return {};
    });
  }));
  if (!known) return fail(Code::kUnsupported, "a data type that is not known");
  return type;
}

Status read_tensor_value(std::span<const std::byte> bytes, MilLiteral* literal) {
  return each_field(bytes, [&](const ProtoField& kind) -> Status {
    return each_field(kind.bytes, [&](const ProtoField& field) -> Status {
      if (field.field != 1) return {};
      if (kind.field == 4) {
        literal->strings.push_back(text_of(field));
      } else if (kind.field == 7) {
        if (literal->type.type != MilType::kFp16 || field.bytes.size() % 2 != 0)
          return fail(Code::kUnsupported, "bytes that are not fp16");
        for (size_t i = 0; i < field.bytes.size(); i += 2)
          literal->numbers.push_back(f16_to_f32(load_as<uint16_t>(&field.bytes[i])));
      } else if (kind.field == 2 || kind.field == 3) {
        if (!field.delimited) {
          literal->numbers.push_back(static_cast<double>(static_cast<int64_t>(field.number)));
          return {};
        }
        BATON_TRY(const std::vector<int64_t> values, unpack_integers(field.bytes));
        literal->numbers.insert(literal->numbers.end(), values.begin(), values.end());
      } else {
        return fail(Code::kUnsupported, fmt::format("tensor values of kind {}", kind.field));
      }
      return {};
    });
  });
}

Result<MilLiteral> read_value(std::span<const std::byte> bytes) {
  MilLiteral literal;
  std::span<const std::byte> immediate;
  BATON_OK(each_field(bytes, [&](const ProtoField& field) -> Status {
    if (field.field == 2) {
      BATON_TRY(literal.type, read_type(field.bytes));
    } else if (field.field == 3) {
      immediate = field.bytes;
    } else if (field.field == 5) {
      literal.in_file = true;
      return each_field(field.bytes, [&](const ProtoField& place) -> Status {
        if (place.field == 1) literal.path = text_of(place);
        if (place.field == 2) literal.offset = place.number;
        return {};
      });
    }
    return {};
  }));
  BATON_OK(each_field(immediate, [&](const ProtoField& field) -> Status {
    if (field.field != 1) return fail(Code::kUnsupported, "an immediate value that is no tensor");
    return read_tensor_value(field.bytes, &literal);
  }));
  return literal;
}

// A map entry's key and value.
Result<std::pair<std::string, std::span<const std::byte>>> read_entry(std::span<const std::byte> bytes) {
  std::pair<std::string, std::span<const std::byte>> out;
  BATON_OK(each_field(bytes, [&](const ProtoField& field) -> Status {
    if (field.field == 1) out.first = text_of(field);
    if (field.field == 2) out.second = field.bytes;
    return {};
  }));
  return out;
}

Result<std::pair<std::string, MilTensorType>> read_named_type(std::span<const std::byte> bytes) {
  std::pair<std::string, MilTensorType> out;
  BATON_OK(each_field(bytes, [&](const ProtoField& field) -> Status {
    if (field.field == 1) out.first = text_of(field);
    if (field.field == 2) {
      BATON_TRY(out.second, read_type(field.bytes));
    }
    return {};
  }));
  return out;
}

Result<MilArgument> read_argument(std::span<const std::byte> bytes) {
  BATON_TRY(const auto entry, read_entry(bytes));
  MilArgument argument;
  argument.parameter = entry.first;
  BATON_OK(each_field(entry.second, [&](const ProtoField& field) -> Status {
    return each_field(field.bytes, [&](const ProtoField& binding) -> Status {
      if (binding.field != 1)
        return fail(Code::kUnsupported, fmt::format("parameter '{}' is bound to a value, not a name", entry.first));
      argument.names.push_back(text_of(binding));
      return {};
    });
  }));
  argument.kind = argument.names.size() == 1 ? MilArgument::Kind::kName : MilArgument::Kind::kNames;
  return argument;
}

Result<MilStatement> read_operation(std::span<const std::byte> bytes) {
  MilStatement statement;
  size_t results = 0;
  BATON_OK(each_field(bytes, [&](const ProtoField& field) -> Status {
    switch (field.field) {
      case 1:
        statement.op = text_of(field);
        return {};
      case 2: {
        BATON_TRY(MilArgument argument, read_argument(field.bytes));
        // A list of one is still a list for the one parameter that takes lists.
        if (argument.parameter == "values") argument.kind = MilArgument::Kind::kNames;
        statement.arguments.push_back(std::move(argument));
        return {};
      }
      case 3: {
        BATON_TRY(auto result, read_named_type(field.bytes));
        statement.name = std::move(result.first);
        statement.type = std::move(result.second);
        ++results;
        return {};
      }
      case 5: {
        BATON_TRY(const auto entry, read_entry(field.bytes));
        MilArgument attribute;
        attribute.parameter = entry.first;
        attribute.kind = MilArgument::Kind::kLiteral;
        BATON_TRY(attribute.literal, read_value(entry.second));
        statement.attributes.push_back(std::move(attribute));
        return {};
      }
      default:
        return fail(Code::kUnsupported, "an operation with blocks");
    }
  }));
  if (results != 1) return fail(Code::kUnsupported, fmt::format("{} with {} results; one", statement.op, results));
  return statement;
}

Status read_block(std::span<const std::byte> bytes, MilFunction* main) {
  return each_field(bytes, [&](const ProtoField& field) -> Status {
    if (field.field == 2) main->outputs.push_back(text_of(field));
    if (field.field != 3) return {};
    if (main->statements.size() >= kMilStatementsMax * 4) return fail(Code::kUnsupported, "too many operations");
    auto statement = read_operation(field.bytes);
    if (!statement) return fail(std::move(statement).error().in(fmt::format("operation {}", main->statements.size())));
    statement->line = static_cast<uint32_t>(main->statements.size());
    main->statements.push_back(std::move(*statement));
    return {};
  });
}

Status read_function(std::span<const std::byte> bytes, MilFunction* main) {
  return each_field(bytes, [&](const ProtoField& field) -> Status {
    if (field.field == 1) {
      BATON_TRY(auto input, read_named_type(field.bytes));
      main->inputs.push_back({std::move(input.second), std::move(input.first), 0});
    } else if (field.field == 2) {
      main->opset = text_of(field);
    } else if (field.field == 3) {
      BATON_TRY(const auto entry, read_entry(field.bytes));
      if (entry.first != main->opset && !main->opset.empty()) {
        return fail(Code::kUnsupported, fmt::format("a block for '{}', the opset is '{}'", entry.first, main->opset));
      }
      main->opset = entry.first;
      return read_block(entry.second, main);
    }
    return {};
  });
}

Result<PackageFeature> read_feature(std::span<const std::byte> bytes) {
  PackageFeature out;
  BATON_OK(each_field(bytes, [&](const ProtoField& field) -> Status {
    if (field.field == 1) out.name = text_of(field);
    if (field.field == 2) out.description = text_of(field);
    if (field.field != 3) return {};
    return each_field(field.bytes, [&](const ProtoField& kind) -> Status {
      if (kind.field != 5) return fail(Code::kUnsupported, fmt::format("a feature of kind {}; array", kind.field));
      return each_field(kind.bytes, [&](const ProtoField& array) -> Status {
        if (array.field == 1) {
          BATON_TRY(const std::vector<int64_t> dims, unpack_integers(array.bytes));
          out.type.dims.insert(out.type.dims.end(), dims.begin(), dims.end());
        } else if (array.field == 2) {
          bool known = false;
          for (const TypeCode& code : kTypeCodes) {
            if (code.feature == 0 || code.feature != array.number) continue;
            out.type.type = code.type;
            known = true;
          }
          if (!known) return fail(Code::kUnsupported, fmt::format("a feature of type {}", array.number));
        }
        return {};
      });
    });
  }));
  return out;
}

Status read_description(std::span<const std::byte> bytes, PackageSpec* spec) {
  return each_field(bytes, [&](const ProtoField& field) -> Status {
    if (field.field == 1 || field.field == 10) {
      auto feature = read_feature(field.bytes);
      if (!feature) return fail(std::move(feature).error().in("description"));
      (field.field == 1 ? spec->inputs : spec->outputs).push_back(std::move(*feature));
    }
    if (field.field == 13 || field.field == 20) return fail(Code::kUnsupported, "states or several functions");
    if (field.field != 100) return {};
    return each_field(field.bytes, [&](const ProtoField& item) -> Status {
      if (item.field == 1) spec->description = text_of(item);
      if (item.field != 100) return {};
      BATON_TRY(const auto entry, read_entry(item.bytes));
      spec->metadata[entry.first] = as_text(entry.second);
      return {};
    });
  });
}

Status read_program(std::span<const std::byte> bytes, MilFunction* main) {
  return each_field(bytes, [&](const ProtoField& field) -> Status {
    if (field.field != 2) return {};
    BATON_TRY(const auto entry, read_entry(field.bytes));
    if (entry.first != "main" || !main->name.empty()) return fail(Code::kUnsupported, "a function other than main");
    main->name = "main";
    return read_function(entry.second, main);
  });
}

}  // namespace

Result<PackageSpec> decode_spec(std::span<const std::byte> bytes) {
  PackageSpec spec;
  spec.specification_version = 0;
  bool has_program = false;
  BATON_OK(each_field(bytes, [&](const ProtoField& field) -> Status {
    if (field.field == 1) spec.specification_version = static_cast<int32_t>(field.number);
    if (field.field == 2) return read_description(field.bytes, &spec);
    if (field.field != 502) return {};
    has_program = true;
    return read_program(field.bytes, &spec.main);
  }));
  if (!has_program || spec.main.name.empty())
    return fail(Code::kUnsupported, "no ML program with a function main; other kinds of models are not read");
  return spec;
}

}  // namespace baton::apple
