// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cuda/cuda_gpu.h"

#include "engine/cuda/column_product.h"

#include <algorithm>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <map>
#include <nccl.h>

namespace rankyard::cuda {

namespace {

constexpr std::size_t productWorkspace = 32
    << 20; ///< bytes of cuBLAS a stream: what NVIDIA advises for Hopper

Status checked(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return {};
    const Code code = error == cudaErrorMemoryAllocation ? Code::DoesNotFit : Code::Internal;
    return Error::make(code, std::string("CUDA cannot ") + what)
        .withFound(std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error));
}

Status checked(cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return {};
    return Error::make(Code::Internal, std::string("cuBLAS cannot ") + what)
        .withFound(cublasGetStatusString(status));
}

Status checked(ncclResult_t result, const char *what, ncclComm_t communicator = nullptr)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return {};
    const char *detail = ncclGetLastError(communicator);
    const Code code =
        result == ncclRemoteError || result == ncclSystemError ? Code::RankFailed : Code::Internal;
    return Error::make(code, std::string("NCCL cannot ") + what)
        .withFound(std::string(ncclGetErrorString(result))
                   + (detail && *detail ? std::string(": ") + detail : ""))
        .withHint("NCCL_DEBUG=INFO in comm.env makes it say more");
}

cudaStream_t streamOf(Stream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t eventOf(Event event) { return static_cast<cudaEvent_t>(event); }

Result<ncclDataType_t> ncclTypeOf(DType type)
{
    switch (type) {
    case DType::F32:
        return ncclFloat32;
    case DType::F64:
        return ncclFloat64;
    case DType::BF16:
        return ncclBfloat16;
    case DType::F16:
        return ncclFloat16;
    case DType::I32:
        return ncclInt32;
    case DType::I64:
        return ncclInt64;
    default:
        return Error::make(Code::Internal, "NCCL has no such type").withFound(nameOf(type));
    }
}

// ---------------------------------------------------------------------------------------------------- links

class NcclLink : public Link
{
public:
    explicit NcclLink(ncclComm_t communicator) : m_communicator(communicator) {}
    ~NcclLink() override
    {
        // Without waiting for peers that may be gone; all work is done when a rank ends well.
        ncclCommAbort(m_communicator);
    }

    Status allReduce(void *data, std::int64_t count, DType type, Stream stream) override
    {
        RY_ASSIGN(const ncclDataType_t kind, ncclTypeOf(type));
        return said(ncclAllReduce(data, data, static_cast<std::size_t>(count), kind, ncclSum, m_communicator,
                                  streamOf(stream)),
                    "start an all-reduce");
    }
    Status reduceScatter(const void *from, void *to, std::int64_t count, DType type, Stream stream) override
    {
        RY_ASSIGN(const ncclDataType_t kind, ncclTypeOf(type));
        return said(ncclReduceScatter(from, to, static_cast<std::size_t>(count), kind, ncclSum,
                                      m_communicator, streamOf(stream)),
                    "start a reduce-scatter");
    }
    Status allGather(const void *from, void *to, std::int64_t count, DType type, Stream stream) override
    {
        const auto bytes = static_cast<std::size_t>(count) * bytesOf(type); // of any type
        return said(ncclAllGather(from, to, bytes, ncclInt8, m_communicator, streamOf(stream)),
                    "start an all-gather");
    }
    Status send(const void *data, std::int64_t bytes, int peer, Stream stream) override
    {
        return said(
            ncclSend(data, static_cast<std::size_t>(bytes), ncclInt8, peer, m_communicator, streamOf(stream)),
            "start a send");
    }
    Status receive(void *data, std::int64_t bytes, int peer, Stream stream) override
    {
        return said(
            ncclRecv(data, static_cast<std::size_t>(bytes), ncclInt8, peer, m_communicator, streamOf(stream)),
            "start a receive");
    }
    Status exchange(const void *out, void *in, std::int64_t bytes, int to, int from, Stream stream) override
    {
        const auto size = static_cast<std::size_t>(bytes);
        RY_TRY(said(ncclGroupStart(), "begin a group"));
        const Status sent =
            said(ncclSend(out, size, ncclInt8, to, m_communicator, streamOf(stream)), "start a send");
        const Status received =
            said(ncclRecv(in, size, ncclInt8, from, m_communicator, streamOf(stream)), "start a receive");
        RY_TRY(said(ncclGroupEnd(), "end a group"));
        RY_TRY(sent);
        return received;
    }
    Status health() override
    {
        ncclResult_t result = ncclSuccess;
        RY_TRY(said(ncclCommGetAsyncError(m_communicator, &result), "say how it is"));
        return said(result, "go on");
    }

private:
    Status said(ncclResult_t result, const char *what) const { return checked(result, what, m_communicator); }
    ncclComm_t m_communicator;
};

// ---------------------------------------------------------------------------------------------------- GPU

class CudaGpu : public Gpu
{
public:
    CudaGpu(int index, const cudaDeviceProp &properties) : m_index(index), m_properties(properties) {}

    /// CUDA has a current device a thread: whatever starts work makes it this one.
    Status use() const
    {
        thread_local int current = -1;
        if (current != m_index) {
            RY_TRY(checked(cudaSetDevice(m_index), "use a GPU"));
            current = m_index;
        }
        return {};
    }

    std::string name() const override
    {
        char bus[32] = "?";
        cudaDeviceGetPCIBusId(bus, sizeof bus, m_index);
        return std::string(m_properties.name) + ", "
            + formatBytes(static_cast<double>(m_properties.totalGlobalMem)) + ", PCI " + bus;
    }
    const Tables &tables() const override { return compiledTables(); }
    std::int64_t freeBytes() const override
    {
        std::size_t free = 0, total = 0;
        return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<std::int64_t>(free) : 0;
    }

    Result<std::byte *> allocate(std::int64_t bytes, Where where) override
    {
        RY_TRY(use());
        void *memory = nullptr;
        const auto size = static_cast<std::size_t>(bytes);
        if (where == Where::PinnedHost) {
            RY_TRY(checked(cudaHostAlloc(&memory, size, cudaHostAllocPortable), "get pinned memory"));
            std::fill_n(static_cast<std::byte *>(memory), size, std::byte{});
            return static_cast<std::byte *>(memory);
        }
        RY_TRY(checked(cudaMalloc(&memory, size), "get device memory"));
        RY_TRY(checked(cudaMemset(memory, 0, size), "fill device memory"));
        RY_TRY(checked(cudaDeviceSynchronize(), "fill device memory"));
        return static_cast<std::byte *>(memory);
    }
    void release(std::byte *memory, Where where) override
    {
        where == Where::PinnedHost ? cudaFreeHost(memory) : cudaFree(memory);
    }
    Result<Stream> makeStream() override
    {
        RY_TRY(use());
        cudaStream_t stream = nullptr;
        RY_TRY(checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream"));
        return Stream(stream);
    }
    Result<Event> makeEvent() override
    {
        RY_TRY(use());
        cudaEvent_t event = nullptr;
        RY_TRY(checked(cudaEventCreateWithFlags(&event, cudaEventDefault), "make an event"));
        return Event(event);
    }

    Status record(Event event, Stream stream) override
    {
        RY_TRY(use());
        return checked(cudaEventRecord(eventOf(event), streamOf(stream)), "record an event");
    }
    Status wait(Stream stream, Event event) override
    {
        RY_TRY(use());
        return checked(cudaStreamWaitEvent(streamOf(stream), eventOf(event), 0), "wait for an event");
    }
    Status copy(void *to, const void *from, std::int64_t bytes, Stream stream) override
    {
        return checked(
            cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, streamOf(stream)),
            "start a copy");
    }
    Status copyRows(void *to, std::int64_t toStride, const void *from, std::int64_t fromStride,
                    std::int64_t bytes, std::int64_t rows, Stream stream) override
    {
        return checked(cudaMemcpy2DAsync(to, static_cast<std::size_t>(toStride), from,
                                         static_cast<std::size_t>(fromStride),
                                         static_cast<std::size_t>(bytes), static_cast<std::size_t>(rows),
                                         cudaMemcpyDefault, streamOf(stream)),
                       "start a copy of rows");
    }
    Status fill(void *at, std::int64_t bytes, Stream stream) override
    {
        return checked(cudaMemsetAsync(at, 0, static_cast<std::size_t>(bytes), streamOf(stream)),
                       "fill memory");
    }
    Status fillRows(void *at, std::int64_t stride, std::int64_t bytes, std::int64_t rows,
                    Stream stream) override
    {
        return checked(cudaMemset2DAsync(at, static_cast<std::size_t>(stride), 0,
                                         static_cast<std::size_t>(bytes), static_cast<std::size_t>(rows),
                                         streamOf(stream)),
                       "fill rows of memory");
    }
    Status multiply(const kernels::Gemm &g, Number type, Stream stream) override;

    Result<bool> done(Event event) override
    {
        const cudaError_t state = cudaEventQuery(eventOf(event));
        if (state == cudaErrorNotReady)
            return false;
        RY_TRY(checked(state, "go on"));
        return true;
    }
    Result<std::int64_t> between(Event begin, Event end) override
    {
        float milliseconds = 0;
        RY_TRY(checked(cudaEventElapsedTime(&milliseconds, eventOf(begin), eventOf(end)), "tell a time"));
        return static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
    }
    Status copyNow(void *to, const void *from, std::int64_t bytes) override
    {
        RY_TRY(use());
        // Not the legacy stream: a copy from pageable memory there may return before it has reached the device.
        if (!m_copies) {
            RY_ASSIGN(m_copies, makeStream());
        }
        RY_TRY(copy(to, from, bytes, m_copies));
        return checked(cudaStreamSynchronize(streamOf(m_copies)), "finish a copy");
    }

    Result<LinkId> makeLinkId() override
    {
        static_assert(sizeof(ncclUniqueId) == sizeof(LinkId));
        ncclUniqueId id;
        RY_TRY(checked(ncclGetUniqueId(&id), "name a communicator"));
        LinkId result;
        std::copy_n(reinterpret_cast<const std::byte *>(&id), sizeof id, result.begin());
        return result;
    }
    Result<std::unique_ptr<Link>> link(const LinkId &id, int rank, int size) override;

    std::vector<std::pair<std::string, std::int64_t>> libraryBytes() const override
    {
        return {{"cuBLAS workspace", static_cast<std::int64_t>(m_products.size() * productWorkspace)}};
    }

private:
    /// cuBLAS of a stream, with a workspace of its own: products are then equal to the bit from run to run.
    Result<cublasHandle_t> products(Stream stream);

    int m_index;
    cudaDeviceProp m_properties;
    Stream m_copies = nullptr;
    std::map<Stream, cublasHandle_t> m_products;
};

Result<cublasHandle_t> CudaGpu::products(Stream stream)
{
    const auto found = m_products.find(stream);
    if (found != m_products.end())
        return found->second;
    cublasHandle_t handle = nullptr;
    RY_TRY(checked(cublasCreate(&handle), "begin"));
    RY_ASSIGN(std::byte * workspace, allocate(productWorkspace, Where::Device));
    RY_TRY(checked(cublasSetStream(handle, streamOf(stream)), "use a stream"));
    RY_TRY(checked(cublasSetWorkspace(handle, workspace, productWorkspace), "use a workspace"));
    // fp32 as such, not TF32; sums of 16-bit products in fp32, also where the sum is split.
    RY_TRY(checked(
        cublasSetMathMode(handle,
                          static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH
                                                    | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
        "set its precision"));
    m_products[stream] = handle;
    return handle;
}

Status CudaGpu::multiply(const kernels::Gemm &g, Number type, Stream stream)
{
    if (g.m == 0 || g.n == 0)
        return {};
    RY_ASSIGN(cublasHandle_t handle, products(stream));
    const bool twice = type == Number::F64;
    const cudaDataType_t input = type == Number::F32 ? CUDA_R_32F
        : twice                                      ? CUDA_R_64F
        : type == Number::Bf16                       ? CUDA_R_16BF
                                                     : CUDA_R_16F;
    const cudaDataType_t output = g.wide ? (twice ? CUDA_R_64F : CUDA_R_32F) : input;
    const float one = 1, beta = g.accumulate ? 1 : 0;
    const double one64 = 1, beta64 = static_cast<double>(beta);
    const void *alphaAt = &one, *betaAt = &beta;
    if (twice) {
        alphaAt = &one64;
        betaAt = &beta64;
    }
    const ColumnProduct p = inColumns(g);
    const auto turned = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
    return checked(cublasGemmEx_64(handle, turned(p.firstTransposed), turned(p.secondTransposed), p.m, p.n,
                                   p.k, alphaAt, p.first, input, p.ldFirst, p.second, input, p.ldSecond,
                                   betaAt, g.c, output, p.ldc,
                                   twice ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                   "start a product");
}

/// Connections are made at the first operation, which waits for the peer: one is made here, where all are.
Status warmUp(Link &link, std::byte *memory, int size, int rank, Stream stream)
{
    if (size != 2)
        return link.allReduce(memory, 64, DType::F32, stream);
    RY_TRY(link.allReduce(memory, 64, DType::F32, stream));
    return rank == 0 ? link.send(memory, 64, 1, stream) : link.receive(memory, 64, 0, stream);
}

Result<std::unique_ptr<Link>> CudaGpu::link(const LinkId &id, int rank, int size)
{
    ncclUniqueId name;
    std::copy(id.begin(), id.end(), reinterpret_cast<std::byte *>(&name));
    ncclComm_t communicator = nullptr;
    RY_TRY(checked(ncclCommInitRank(&communicator, size, name, rank), "make a communicator"));
    auto link = std::make_unique<NcclLink>(communicator);
    RY_ASSIGN(std::byte * memory, allocate(256, Where::Device));
    RY_ASSIGN(const Stream stream, makeStream());
    const Status warm = warmUp(*link, memory, size, rank, stream);
    const Status ended = checked(cudaStreamSynchronize(streamOf(stream)), "reach the peers");
    release(memory, Where::Device);
    cudaStreamDestroy(streamOf(stream));
    RY_TRY(warm);
    RY_TRY(ended);
    return std::unique_ptr<Link>(std::move(link));
}

} // namespace

int gpuCount()
{
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

Result<std::shared_ptr<Gpu>> openGpu(int index)
{
    cudaDeviceProp properties{};
    RY_TRY(checked(cudaSetDevice(index), "use a GPU"));
    RY_TRY(checked(cudaGetDeviceProperties(&properties, index), "describe a GPU"));
    constexpr int oldest = RANKYARD_CUDA_OLDEST; // of the architectures that the kernels are compiled for
    if (properties.major * 10 + properties.minor < oldest)
        return Error::make(Code::NotHere, "the GPU is older than what the kernels are compiled for",
                           properties.name)
            .withFound(std::to_string(properties.major) + "." + std::to_string(properties.minor))
            .withExpected("compute capability " + std::to_string(oldest / 10) + "."
                          + std::to_string(oldest % 10))
            .withHint(
                "Build with -DRANKYARD_CUDA_ARCHITECTURES=… for it, or set CUDA_VISIBLE_DEVICES to nothing");
    return std::shared_ptr<Gpu>(std::make_shared<CudaGpu>(index, properties));
}

} // namespace rankyard::cuda
