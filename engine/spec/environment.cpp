// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/spec/environment.h"

#include "engine/spec/job_table.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

namespace rankyard::spec {

namespace {

using Kind = KnownVariable::Kind;

constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();

KnownVariable flag(const char *name) { return {name, Kind::Flag}; }
KnownVariable text(const char *name) { return {name, Kind::Text}; }
KnownVariable integer(const char *name, std::int64_t least, std::int64_t most,
                      std::vector<std::string> words = {})
{
    return {name, Kind::Integer, least, most, std::move(words)};
}
KnownVariable choice(const char *name, std::vector<std::string> choices)
{
    return {name, Kind::Choice, 0, 0, std::move(choices)};
}

std::vector<KnownVariable> allVariables()
{
    return {
        choice("CUDA_DEVICE_ORDER", {"PCI_BUS_ID", "FASTEST_FIRST"}),
        text("CUDA_VISIBLE_DEVICES"),
        integer("CUDA_DEVICE_MAX_CONNECTIONS", 1, 32),
        flag("CUDA_LAUNCH_BLOCKING"),
        choice("CUDA_MODULE_LOADING", {"LAZY", "EAGER", "DEFAULT"}),
        flag("CUDA_CACHE_DISABLE"),
        integer("CUDA_CACHE_MAXSIZE", 0, 4294967296),
        text("CUDA_CACHE_PATH"),
        flag("CUDA_DISABLE_PTX_JIT"),
        flag("CUDA_FORCE_PTX_JIT"),
        flag("CUDA_ENABLE_COREDUMP_ON_EXCEPTION"),
        text("CUDA_COREDUMP_FILE"),
        integer("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 1, 100),
        text("CUDA_MPS_PIPE_DIRECTORY"),
        text("NCCL_ALGO"),
        integer("NCCL_BUFFSIZE", 1, any),
        flag("NCCL_CHECK_POINTERS"),
        flag("NCCL_COLLNET_ENABLE"),
        integer("NCCL_COLLNET_NODE_THRESHOLD", 1, any),
        flag("NCCL_COMM_BLOCKING"),
        text("NCCL_CONF_FILE"),
        integer("NCCL_CROSS_NIC", 0, 2),
        integer("NCCL_CUMEM_ENABLE", 0, 1),
        flag("NCCL_CUMEM_HOST_ENABLE"),
        choice("NCCL_DEBUG", {"VERSION", "WARN", "INFO", "ABORT", "TRACE"}),
        text("NCCL_DEBUG_FILE"),
        text("NCCL_DEBUG_SUBSYS"),
        flag("NCCL_DMABUF_ENABLE"),
        text("NCCL_GRAPH_DUMP_FILE"),
        text("NCCL_GRAPH_FILE"),
        flag("NCCL_GRAPH_MIXING_SUPPORT"),
        flag("NCCL_GRAPH_REGISTER"),
        text("NCCL_HOSTID"),
        flag("NCCL_IB_ADAPTIVE_ROUTING"),
        choice("NCCL_IB_ADDR_FAMILY", {"AF_INET", "AF_INET6"}),
        text("NCCL_IB_ADDR_RANGE"),
        integer("NCCL_IB_AR_THRESHOLD", 0, any),
        flag("NCCL_IB_DATA_DIRECT"),
        flag("NCCL_IB_DISABLE"),
        flag("NCCL_IB_ECE_ENABLE"),
        integer("NCCL_IB_FIFO_TC", 0, 255),
        integer("NCCL_IB_GID_INDEX", -1, 255),
        text("NCCL_IB_HCA"),
        flag("NCCL_IB_MERGE_NICS"),
        flag("NCCL_IB_MERGE_VFS"),
        integer("NCCL_IB_PCI_RELAXED_ORDERING", 0, 2),
        integer("NCCL_IB_PKEY", 0, 65535),
        integer("NCCL_IB_QPS_PER_CONNECTION", 1, 128),
        integer("NCCL_IB_RETRY_CNT", 0, 7),
        flag("NCCL_IB_RETURN_ASYNC_EVENTS"),
        integer("NCCL_IB_ROCE_VERSION_NUM", 1, 2),
        integer("NCCL_IB_SL", 0, 15),
        flag("NCCL_IB_SPLIT_DATA_ON_QPS"),
        integer("NCCL_IB_TC", 0, 255),
        integer("NCCL_IB_TIMEOUT", 1, 31),
        flag("NCCL_IGNORE_CPU_AFFINITY"),
        choice("NCCL_LAUNCH_MODE", {"PARALLEL", "GROUP"}),
        flag("NCCL_LAUNCH_ORDER_IMPLICIT"),
        flag("NCCL_LOCAL_REGISTER"),
        integer("NCCL_MAX_CTAS", 1, 64),
        integer("NCCL_MAX_NCHANNELS", 1, 64),
        integer("NCCL_MAX_P2P_NCHANNELS", 1, 64),
        integer("NCCL_MIN_CTAS", 1, 64),
        integer("NCCL_MIN_NCHANNELS", 1, 64),
        integer("NCCL_MIN_P2P_NCHANNELS", 1, 64),
        integer("NCCL_MNNVL_ENABLE", 0, 2),
        integer("NCCL_NCHANNELS_PER_NET_PEER", 1, 64),
        text("NCCL_NET"),
        flag("NCCL_NET_GDR_C2C"),
        integer("NCCL_NET_GDR_LEVEL", 0, 5, {"LOC", "PIX", "PXB", "PHB", "SYS"}),
        flag("NCCL_NET_GDR_READ"),
        choice("NCCL_NET_MERGE_LEVEL", {"LOC", "PORT", "PIX", "PXB", "PHB", "SYS"}),
        text("NCCL_NET_PLUGIN"),
        flag("NCCL_NET_SHARED_BUFFERS"),
        flag("NCCL_NET_SHARED_COMMS"),
        integer("NCCL_NSOCKS_PERTHREAD", 1, 16),
        choice("NCCL_NTHREADS", {"64", "128", "256", "512"}),
        flag("NCCL_NVB_DISABLE"),
        integer("NCCL_NVLS_ENABLE", 0, 2),
        flag("NCCL_NVTX_DISABLE"),
        flag("NCCL_OOB_NET_ENABLE"),
        text("NCCL_OOB_NET_IFNAME"),
        flag("NCCL_P2P_DIRECT_DISABLE"),
        flag("NCCL_P2P_DISABLE"),
        integer("NCCL_P2P_LEVEL", 0, 5, {"LOC", "NVL", "PIX", "PXB", "PHB", "SYS"}),
        integer("NCCL_P2P_NET_CHUNKSIZE", 1, any),
        integer("NCCL_P2P_NVL_CHUNKSIZE", 1, any),
        integer("NCCL_P2P_PCI_CHUNKSIZE", 1, any),
        integer("NCCL_P2P_PXN_LEVEL", 0, 2),
        flag("NCCL_PAT_ENABLE"),
        text("NCCL_PROFILER_PLUGIN"),
        text("NCCL_PROTO"),
        flag("NCCL_PXN_C2C"),
        flag("NCCL_PXN_DISABLE"),
        text("NCCL_RAS_ADDR"),
        flag("NCCL_RAS_ENABLE"),
        integer("NCCL_RAS_TIMEOUT_FACTOR", 1, any),
        flag("NCCL_RUNTIME_CONNECT"),
        flag("NCCL_SET_STACK_SIZE"),
        flag("NCCL_SHM_DISABLE"),
        integer("NCCL_SOCKET_NTHREADS", 1, 16),
        choice("NCCL_SOCKET_FAMILY", {"AF_INET", "AF_INET6"}),
        text("NCCL_SOCKET_IFNAME"),
        integer("NCCL_SOCKET_RETRY_CNT", 0, any),
        integer("NCCL_SOCKET_RETRY_SLEEP_MSEC", 0, any),
        text("NCCL_THREAD_THRESHOLDS"),
        text("NCCL_TOPO_DUMP_FILE"),
        text("NCCL_TOPO_FILE"),
        text("NCCL_TUNER_PLUGIN"),
        flag("NCCL_WARN_ENABLE_DEBUG_INFO"),
        flag("NCCL_WIN_ENABLE"),
        integer("NCCL_WORK_FIFO_BYTES", 1, any),
    };
}

std::string joined(const std::vector<std::string> &words)
{
    std::string all;
    for (const std::string &word : words)
        all += (all.empty() ? "" : ", ") + word;
    return all;
}

std::optional<std::int64_t> numberOf(const std::string &value)
{
    std::int64_t number = 0;
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number);
    if (value.empty() || parsed.ec != std::errc() || parsed.ptr != value.data() + value.size())
        return {};
    return number;
}

/// What works instead of `value`; empty when it works.
std::string wanted(const KnownVariable &variable, const std::string &value)
{
    const auto &words = variable.choices;
    const bool listed = std::find(words.begin(), words.end(), value) != words.end();
    switch (variable.kind) {
    case Kind::Text:
        return {};
    case Kind::Flag:
        return value == "0" || value == "1" ? "" : "0 or 1";
    case Kind::Choice: {
        const std::string near = closest(value, words);
        return listed ? "" : joined(words) + (near.empty() ? "" : "; nearest: " + near);
    }
    default: {
        const auto number = numberOf(value);
        if (listed || (number && *number >= variable.least && *number <= variable.most))
            return {};
        std::string range = variable.most == any
            ? "a whole number, at least " + std::to_string(variable.least)
            : "a whole number of " + std::to_string(variable.least) + " to " + std::to_string(variable.most);
        if (!words.empty())
            range += ", or " + joined(words);
        if (number)
            range += "; nearest: " + std::to_string(std::clamp(*number, variable.least, variable.most));
        else if (const std::string near = closest(value, words); !near.empty())
            range += "; nearest: " + near;
        return range;
    }
    }
}

} // namespace

const std::vector<KnownVariable> &knownVariables()
{
    static const std::vector<KnownVariable> all = allVariables();
    return all;
}

Status checkVariable(const std::string &name, const std::string &value)
{
    if (!name.starts_with("CUDA_") && !name.starts_with("NCCL_"))
        return {};
    const auto &all = knownVariables();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const KnownVariable &one) { return name == one.name; });
    if (found == all.end()) {
        std::vector<std::string> names;
        for (const KnownVariable &one : all)
            names.emplace_back(one.name);
        const std::string near = closest(name, names);
        return jobError("comm.env." + name, "CUDA and NCCL know no such variable", shown(Json(name)),
                        near.empty() ? "a variable of their documentation" : "nearest: " + near);
    }
    if (const std::string expected = wanted(*found, value); !expected.empty())
        return jobError("comm.env." + name, "not a value of this variable", shown(Json(value)), expected);
    return {};
}

} // namespace rankyard::spec
