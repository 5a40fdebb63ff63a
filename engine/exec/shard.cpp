// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/shard.h"

#include "engine/base/float16.h"

#include <algorithm>

namespace rankyard::exec {

std::vector<ShardRange> shardOf(const plan::StepProgram &program, int sliceRank)
{
    std::vector<ShardRange> ranges;
    for (std::size_t index = 0; index < program.buckets.size(); ++index) {
        const plan::Bucket &bucket = program.buckets[index];
        const std::int64_t slice = bucket.padded / bucket.slices;
        const std::int64_t first = bucket.slices > 1 ? slice * sliceRank : 0;
        for (const plan::TensorId id : bucket.tensors) {
            const plan::Tensor &tensor = program.tensors[static_cast<std::size_t>(id)];
            const std::int64_t begin = std::max(tensor.offset, first);
            const std::int64_t end = std::min(tensor.offset + tensor.numel, first + slice);
            if (begin < end)
                ranges.push_back({id, static_cast<std::int32_t>(index), begin - tensor.offset,
                                  end - tensor.offset, begin - first});
        }
    }
    return ranges;
}

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

} // namespace rankyard::exec
