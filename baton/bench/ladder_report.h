// A ladder for readers: a Markdown table with the verdict, JSON rows, and a page with plots.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "baton/bench/html.h"
#include "baton/bench/ladder.h"

namespace baton {

// One object a row, the largest file first: type, bytes, ppl, dppl, dppl_error (as llama.cpp: tokens as draws),
// kld_mean, top1, prefill_tps, decode_tps (medians), pareto, and the rest of what is known. Null: not known or not
// measured. What belongs to the whole ladder (text, windows, unit) is repeated in each row.
nlohmann::ordered_json ladder_json(const LadderReport& report);

// Errors of PPL differences and KL divergences are those by windows where there are two.
std::string ladder_text(const LadderReport& report);

// What was measured, how, and what to know before believing it; one sentence or list each.
std::vector<std::string> ladder_notes(const LadderReport& report);

// One HTML file that needs nothing else: which type to take, size against KL divergence, decode speed against KL
// divergence, the table, the verdict. Light and dark.
std::string ladder_html(const LadderReport& report, const PageInfo& info = {});

}  // namespace baton
