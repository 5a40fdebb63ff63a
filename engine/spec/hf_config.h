// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/spec/job.h"

#include <string>

/// Models from the config.json that Hugging Face's libraries write.
namespace rankyard::spec {

/// A model's config.json as Hugging Face's libraries write it: model_type gpt2 or llama, mistral without a sliding window.
/// Keys that are missing have that library's defaults. BadData: another type, or a key of the wrong type; names the key.
Result<Model> readHfConfig(const Json &config, const std::string &name);
/// The sections of a job that the file stands for: "model", and for mixtral, qwen3_moe and deepseek_v3 "plan_only". BadData as above.
Result<Json> readHfSections(const Json &config, const std::string &name);

} // namespace rankyard::spec
