// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/elements.h"

#include "engine/base/float16.h"

namespace rankyard::exec {

void storeElements(DType type, std::byte *buffer, std::int64_t at, const double *values, std::int64_t count)
{
    for (std::int64_t i = 0; i < count; ++i) {
        const auto place = static_cast<std::size_t>(at + i);
        const auto single = static_cast<float>(values[i]);
        switch (type) {
        case DType::F64:
            reinterpret_cast<double *>(buffer)[place] = values[i];
            break;
        case DType::F32:
            reinterpret_cast<float *>(buffer)[place] = single;
            break;
        case DType::BF16:
            reinterpret_cast<std::uint16_t *>(buffer)[place] = toBFloat16(single);
            break;
        case DType::F16:
            reinterpret_cast<std::uint16_t *>(buffer)[place] = toHalf(single);
            break;
        default:
            break;
        }
    }
}

void loadElements(DType type, const std::byte *buffer, std::int64_t at, double *values, std::int64_t count)
{
    for (std::int64_t i = 0; i < count; ++i) {
        const auto place = static_cast<std::size_t>(at + i);
        switch (type) {
        case DType::F64:
            values[i] = reinterpret_cast<const double *>(buffer)[place];
            break;
        case DType::F32:
            values[i] = static_cast<double>(reinterpret_cast<const float *>(buffer)[place]);
            break;
        case DType::BF16:
            values[i] =
                static_cast<double>(fromBFloat16(reinterpret_cast<const std::uint16_t *>(buffer)[place]));
            break;
        case DType::F16:
            values[i] = static_cast<double>(fromHalf(reinterpret_cast<const std::uint16_t *>(buffer)[place]));
            break;
        default:
            break;
        }
    }
}

} // namespace rankyard::exec
