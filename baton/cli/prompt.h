// Where the first question of run and chat comes from, and what is said around it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "baton/base/status.h"
#include "baton/cli/command.h"
#include "baton/cli/model_flags.h"

namespace baton::cli {

// A prompt given as text, in a file (- is standard input), or in both: the text, an empty line, the file. The newline
// that ends the file's last line, as an editor or echo leaves it, is not part of the prompt, unless `as_it_is`.
struct PromptSource {
  std::string text, file;
  bool as_it_is = false;
};
Result<std::string> read_prompt(const PromptSource& source);

// kInvalidInput, with the way to say it, when `text` is the path of a model and not a question.
Status check_no_model(std::string_view text);
// "...: give it with -m", or empty when there is no model of that path.
std::string model_hint(std::string_view path);

// Warns when the prompt was given and something waits in a pipe on standard input, which is not read: it may be the
// input of the loop that calls the program.
void warn_of_unread_pipe();

// One line on stderr when the model is the bundled one because none was asked for.
void say_bundled_model(const ModelFlags& flags);

// A context for so many tokens as a flag, "-c 512"; nothing when `context` is the most that the model was made for.
std::string larger_context_flag(const Model& model, uint64_t context, uint64_t tokens);

// An error of a library, which knows no flags, with the flags that mend it. `text`: where it came from encoding a
// prompt.
Error with_flags(Error error, const TextModel* text = nullptr);

}  // namespace baton::cli
