// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/store/span_files.h"

#include "engine/base/file.h"
#include "engine/telemetry/wire.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <zstd.h>

namespace rankyard::store {

namespace fs = std::filesystem;

namespace {

constexpr int compressionLevel = 1; // the columns are differences already: higher levels gain 3 %
constexpr unsigned long long mostBytes = 64ull << 20;

} // namespace

fs::path spanFile(const fs::path &runFolder, std::int32_t rank, std::int64_t step, plan::ProgramKind program,
                  std::uint32_t epoch)
{
    return runFolder / "spans"
        / (std::to_string(rank) + "." + std::to_string(step) + "." + std::to_string(static_cast<int>(program))
           + "." + std::to_string(epoch) + ".zst");
}

Status writeSpans(const fs::path &file, const telemetry::SpanRecord &spans)
{
    const std::string bytes = telemetry::wire::packSpans(spans);
    std::string packed(ZSTD_compressBound(bytes.size()), '\0');
    const std::size_t size =
        ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), compressionLevel);
    if (ZSTD_isError(size))
        return Error::make(Code::Internal, "cannot compress spans", file.string())
            .withFound(ZSTD_getErrorName(size));
    RY_TRY(makePrivateDir(file.parent_path()));
    const std::string temporary = file.string() + "." + std::to_string(::getpid()) + ".new";
    Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!fd.valid())
        return Error::fromErrno(errno, "cannot write spans", file.string());
    auto status = writeAll(fd.get(), std::string_view(packed).substr(0, size), file.string());
    if (status && ::rename(temporary.c_str(), file.c_str()) != 0)
        status = Error::fromErrno(errno, "cannot write spans", file.string());
    if (!status)
        ::unlink(temporary.c_str());
    return status;
}

Result<telemetry::SpanRecord> readSpans(const fs::path &file)
{
    RY_ASSIGN(const std::string packed, readFile(file));
    const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
    const Error damaged = Error::make(Code::BadData, "a file of spans is damaged", file.string());
    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > mostBytes)
        return damaged;
    std::string bytes(static_cast<std::size_t>(size), '\0');
    if (ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size()) != bytes.size())
        return damaged;
    return telemetry::wire::unpackSpans(bytes);
}

} // namespace rankyard::store
