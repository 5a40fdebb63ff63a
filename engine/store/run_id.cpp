// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/units.h"
#include "engine/store/run_store.h"

#include <cstdio>
#include <ctime>
#include <random>

namespace rankyard::store {

std::string makeRunId()
{
    // Crockford's base 32 in lower case: no letter that is read as another.
    static constexpr char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    const std::time_t now = static_cast<std::time_t>(wallNs() / 1'000'000'000);
    std::tm utc{};
    ::gmtime_r(&now, &utc);
    char time[96];
    std::snprintf(time, sizeof time, "r-%04d%02d%02dT%02d%02d%02d-", utc.tm_year + 1900, utc.tm_mon + 1,
                  utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
    std::string id = time;
    std::random_device random;
    for (int i = 0; i < 6; ++i)
        id.push_back(digits[random() % 32]);
    return id;
}

bool isRunId(const std::string &text)
{
    if (text.size() != 24 || !text.starts_with("r-") || text[10] != 'T' || text[17] != '-')
        return false;
    for (std::size_t i = 2; i < text.size(); ++i) {
        const bool digit = text[i] >= '0' && text[i] <= '9';
        const bool letter = text[i] >= 'a' && text[i] <= 'z';
        if (i != 10 && i != 17 && !digit && !(i > 17 && letter))
            return false;
    }
    return true;
}

} // namespace rankyard::store
