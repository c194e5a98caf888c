// Rows of pipelines for readers: tables in the layout of the source documents, JSON, and a page with bars.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "baton/bench/html.h"
#include "baton/bench/pipelines.h"
#include "baton/bench/predict.h"

namespace baton {

// What stands above the tables.
struct ReportTitle {
  std::string model, machine;
  std::string note;  // what the figures are: "measured on this machine", "emulated: ..."
};

// The pipeline with what did its work, so that a cpu does not pass for a GPU: "gpu, ran on cpu", "ane-batch, ran on ane
// -> cpu". The name alone where that is what ran, and where nothing did.
std::string pipeline_label(const PipelineRow& row);
// Each phase for itself: what an emulated unit hands over may be decoded for real.
enum class Phases : uint8_t { kPrefill, kDecode, kBoth };
bool emulated(const PipelineRow& row, Phases phases);

// One object a row: pipeline, prefill and decode {asked, ran, evidence}, prompt_tokens, ttft_ms, prefill_tps,
// decode_tps, bridge_ms, bridge_bytes, peak_memory_bytes, watts, joules, quality {time, energy}. Medians; null: not
// known.
nlohmann::ordered_json rows_json(std::span<const PipelineRow> rows);

// Markdown: units asked and proven, one line a row, then TTFT and decode with a column for each pipeline.
std::string report_text(const ReportTitle& title, const PipelineReport& report);

// The published rows beside the predictions, the calibration rows marked, and where and why the model is wrong by more
// than kDeviationStated.
std::string published_text(std::span<const Comparison> rows);
// The part of it behind the table.
std::string published_summary(std::span<const Comparison> rows);
nlohmann::ordered_json published_json(std::span<const Comparison> rows);

// One HTML file that needs nothing else. `published` may be empty.
std::string report_html(const ReportTitle& title, const PipelineReport& report, std::span<const Comparison> published,
                        const PageInfo& info = {});

}  // namespace baton
