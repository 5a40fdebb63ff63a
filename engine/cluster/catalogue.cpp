// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cluster/catalogue.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace rankyard::cluster {

namespace {

constexpr double G = 1e9;
constexpr double T = 1e12;

constexpr GpuModel models[] = {
    {"V100 SXM 16 GB", 16 * G, 0.90 * T, 15.7 * T, 0, 125 * T, 0, 150 * G, 16 * G, false},
    {"V100 SXM 32 GB", 32 * G, 0.90 * T, 15.7 * T, 0, 125 * T, 0, 150 * G, 16 * G, false},
    {"T4", 16 * G, 0.32 * T, 8.1 * T, 0, 65 * T, 0, 0, 16 * G, false},
    {"A10", 24 * G, 0.60 * T, 31.2 * T, 62.5 * T, 125 * T, 0, 0, 32 * G},
    {"RTX 3090", 24 * G, 0.936 * T, 35.6 * T, 35.6 * T, 71 * T, 0, 56 * G, 32 * G},
    {"RTX 4090", 24 * G, 1.008 * T, 82.6 * T, 82.6 * T, 165 * T, 330 * T, 0, 32 * G},
    {"A100 SXM 40 GB", 40 * G, 1.555 * T, 19.5 * T, 156 * T, 312 * T, 0, 300 * G, 32 * G},
    {"A100 SXM 80 GB", 80 * G, 2.04 * T, 19.5 * T, 156 * T, 312 * T, 0, 300 * G, 32 * G},
    {"A100 PCIe 40 GB", 40 * G, 1.555 * T, 19.5 * T, 156 * T, 312 * T, 0, 0, 32 * G},
    {"A100 PCIe 80 GB", 80 * G, 1.94 * T, 19.5 * T, 156 * T, 312 * T, 0, 0, 32 * G},
    {"L40S", 48 * G, 0.86 * T, 91.6 * T, 183 * T, 362 * T, 733 * T, 0, 32 * G},
    {"H100 SXM", 80 * G, 3.35 * T, 67 * T, 494.5 * T, 989.5 * T, 1979 * T, 450 * G, 63 * G},
    {"H100 PCIe", 80 * G, 2.0 * T, 51.2 * T, 378 * T, 756 * T, 1513 * T, 0, 63 * G},
    {"H100 NVL", 94 * G, 3.9 * T, 60 * T, 417.5 * T, 835.5 * T, 1671 * T, 300 * G, 63 * G},
    {"H200 SXM", 141 * G, 4.8 * T, 67 * T, 494.5 * T, 989.5 * T, 1979 * T, 450 * G, 63 * G},
    {"B200", 180 * G, 8.0 * T, 80 * T, 1125 * T, 2250 * T, 4500 * T, 900 * G, 63 * G},
    // To its host over NVLink-C2C, not PCIe.
    {"GB200", 186 * G, 8.0 * T, 80 * T, 1250 * T, 2500 * T, 5000 * T, 900 * G, 450 * G},
    {"B300", 288 * G, 8.0 * T, 77 * T, 1125 * T, 2250 * T, 4500 * T, 900 * G, 63 * G},
    {"GB300", 288 * G, 8.0 * T, 80 * T, 1250 * T, 2500 * T, 5000 * T, 900 * G, 450 * G},
    {"MI250X", 128 * G, 3.28 * T, 47.9 * T, 0, 383 * T, 0, 350 * G, 32 * G},
    {"MI300X", 192 * G, 5.3 * T, 163.4 * T, 653.7 * T, 1307 * T, 2615 * T, 448 * G, 63 * G},
};

/// Words of letters and digits, lower case: "NVIDIA A100-SXM4-80GB" → nvidia, a100, sxm4, 80gb.
std::vector<std::string> wordsOf(std::string_view text)
{
    std::vector<std::string> words(1);
    for (const char c : text) {
        if (std::isalnum(static_cast<unsigned char>(c)))
            words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        else if (!words.back().empty())
            words.emplace_back();
    }
    if (words.back().empty())
        words.pop_back();
    // "80 GB" is one word.
    for (std::size_t i = 1; i < words.size();) {
        if (words[i] == "gb" && std::isdigit(static_cast<unsigned char>(words[i - 1][0]))) {
            words[i - 1] += "gb";
            words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
            ++i;
        }
    }
    return words;
}

bool has(const std::vector<std::string> &words, const std::string &wanted)
{
    return std::any_of(words.begin(), words.end(), [&](const std::string &word) {
        // "sxm" is "sxm4" and "sxm5" to drivers.
        return word == wanted || (wanted == "sxm" && word.size() == 4 && word.starts_with("sxm"));
    });
}

} // namespace

std::span<const GpuModel> gpuModels() { return models; }

const GpuModel *findGpu(std::string_view name)
{
    const std::vector<std::string> given = wordsOf(name);
    const GpuModel *best = nullptr;
    std::size_t most = 0;
    for (const GpuModel &model : models) {
        const std::vector<std::string> wanted = wordsOf(model.name);
        const auto hits = static_cast<std::size_t>(
            std::count_if(wanted.begin(), wanted.end(), [&](const auto &word) { return has(given, word); }));
        // The part that names it must be there ("A100"; "RTX 4090" has its number second); the more of the rest the better.
        const std::string &key = wanted[0] == "rtx" ? wanted[1] : wanted[0];
        if (has(given, key) && hits > most) {
            best = &model;
            most = hits;
        }
    }
    return best;
}

} // namespace rankyard::cluster
