// SPDX-License-Identifier: GPL-3.0-or-later
// bench_data FILE: speed of preparing FILE with both kinds of tokenizer, of the permutation and of filling micro-batches,
// in processor time.
#include "engine/data/permutation.h"
#include "engine/data/prepare.h"
#include "engine/data/sampler.h"

#include <cstdio>
#include <ctime>
#include <unistd.h>

using namespace rankyard;
using namespace rankyard::data;

namespace {

/// Processor time of this process: what other processes on the machine cost is left out.
std::int64_t cpuNs()
{
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    const auto dir =
        std::filesystem::temp_directory_path() / ("rankyard bench " + std::to_string(::getpid()));
    const double megabytes = static_cast<double>(std::filesystem::file_size(argv[1])) / 1e6;
    for (const char *tokenizer : {"bpe:4096", "byte"}) {
        std::int64_t trained = 0;
        const std::int64_t begin = cpuNs();
        const auto side = prepare({.inputs = {argv[1]},
                                   .tokenizer = tokenizer,
                                   .out = dir / "c",
                                   .progress = [&](const PrepareProgress &p) {
                                       if (p.stage == std::string("encoding") && trained == 0)
                                           trained = cpuNs();
                                       return true;
                                   }});
        if (!side) {
            std::fprintf(stderr, "%s\n", side.error().text().c_str());
            return 1;
        }
        const double seconds = static_cast<double>(cpuNs() - begin) / 1e9;
        std::printf("%s: %.2f s, %.1f MB/s all together, first report of encoding after %.2f s\n", tokenizer,
                    seconds, megabytes / seconds, static_cast<double>(trained - begin) / 1e9);
    }
    const Permutation order(1000003, 1, 0);
    std::int64_t sum = 0;
    std::int64_t begin = cpuNs();
    for (std::int64_t i = 0; i < 1000003; ++i)
        sum += order(i);
    std::printf("permutation: %.1f ns (sum %lld)\n", static_cast<double>(cpuNs() - begin) / 1000003,
                static_cast<long long>(sum));
    spec::JobSpec job;
    job.data.train = "c";
    const auto corpus = Corpus::open(job, dir);
    if (!corpus)
        return 1;
    const Sampler sampler(*corpus, job);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(job.batch.micro * job.model.seq));
    std::vector<std::int32_t> labels(tokens.size());
    double ns = 0;
    for (int pass = 0; pass < 3; ++pass) { // the first one faults the pages in
        begin = cpuNs();
        for (std::int64_t step = 0; step < 2000; ++step) {
            if (!sampler.fill(step, 0, 0, tokens.data(), labels.data()))
                return 1;
        }
        ns = static_cast<double>(cpuNs() - begin) / 2000;
    }
    std::printf("fill: %.0f ns a micro-batch of %zu tokens, %.2f ns a token\n", ns, tokens.size(),
                ns / static_cast<double>(tokens.size()));
    std::filesystem::remove_all(dir);
}
