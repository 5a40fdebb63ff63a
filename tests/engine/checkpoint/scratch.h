// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <unistd.h>

namespace rankyard::checkpoint::test {

/// A folder of its own for a test, with a space and a letter outside ASCII in its name; removed at the end.
class Scratch
{
public:
    Scratch()
    {
        static std::atomic<int> counter{0};
        m_path = std::filesystem::temp_directory_path()
            / ("rankyard ckpt ö " + std::to_string(::getpid()) + "-" + std::to_string(counter++));
        std::filesystem::create_directories(m_path);
    }
    ~Scratch() { std::filesystem::remove_all(m_path); }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

    std::filesystem::path operator/(const std::string &name) const { return m_path / name; }
    const std::filesystem::path &path() const { return m_path; }

    std::filesystem::path write(const std::string &name, std::string_view content) const
    {
        std::ofstream(m_path / name, std::ios::binary)
            .write(content.data(), static_cast<std::streamsize>(content.size()));
        return m_path / name;
    }

private:
    std::filesystem::path m_path;
};

inline std::string slurp(const std::filesystem::path &path) { return readFile(path).value(); }

inline std::set<std::string> namesOf(const std::filesystem::path &folder)
{
    std::set<std::string> found;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
        found.insert(entry.path().filename().string());
    return found;
}

} // namespace rankyard::checkpoint::test
