// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/step_program.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace rankyard::plan {

namespace {

constexpr std::string_view schemaFamily = "rankyard/program";

template<typename E>
bool enumFromName(const std::string &name, E &value, int count)
{
    for (int i = 0; i < count; ++i) {
        if (name == nameOf(static_cast<E>(i))) {
            value = static_cast<E>(i);
            return true;
        }
    }
    return false;
}

/// Reads one object key by key and remembers the first thing that is wrong, with its path. Every getter leaves the value as
/// it is when the key is absent and has a default.
class ObjectReader
{
public:
    ObjectReader(const Json &json, std::string path) : m_json(json), m_path(std::move(path))
    {
        if (!json.is_object())
            fail("", "must be an object", json);
    }

    void integer(const char *key, std::int64_t &value, std::int64_t least, std::int64_t most,
                 bool required = true)
    {
        if (const Json *found = take(key, required))
            readInteger(*found, key, value, least, most);
    }
    void integer(const char *key, std::int32_t &value, std::int64_t least, std::int64_t most,
                 bool required = true)
    {
        std::int64_t wide = value;
        integer(key, wide, least, std::min<std::int64_t>(most, std::numeric_limits<std::int32_t>::max()),
                required);
        value = static_cast<std::int32_t>(wide);
    }
    /// An index below `count`.
    void index(const char *key, std::int32_t &value, std::size_t count, bool required = true)
    {
        integer(key, value, 0, static_cast<std::int64_t>(count) - 1, required);
    }
    void text(const char *key, std::string &value)
    {
        if (const Json *found = take(key, true)) {
            if (found->is_string())
                value = found->get_ref<const std::string &>();
            else
                fail(key, "must be a string", *found);
        }
    }
    void flag(const char *key, bool &value, bool required = false)
    {
        if (const Json *found = take(key, required)) {
            if (found->is_boolean())
                value = found->get<bool>();
            else
                fail(key, "must be true or false", *found);
        }
    }
    template<typename E>
    void name(const char *key, E &value, int count, bool required = true)
    {
        if (const Json *found = take(key, required)) {
            if (!found->is_string() || !enumFromName(found->get_ref<const std::string &>(), value, count))
                fail(key, "no such name", *found);
        }
    }
    template<typename T>
    void list(const char *key, std::vector<T> &value, std::int64_t least, std::int64_t most,
              bool required = true)
    {
        const Json *found = take(key, required);
        if (found == nullptr)
            return;
        if (!found->is_array()) {
            fail(key, "must be a list", *found);
            return;
        }
        value.clear();
        for (const Json &item : *found) {
            std::int64_t wide = 0;
            readInteger(item, key, wide, least, most);
            value.push_back(static_cast<T>(wide));
        }
    }
    const Json *take(const char *key, bool required)
    {
        if (m_error)
            return nullptr;
        const auto found = m_json.find(key);
        if (found == m_json.end()) {
            if (required)
                m_error = Error::make(Code::BadData, "a key is missing", m_path + "." + key);
            return nullptr;
        }
        ++m_taken;
        return &*found;
    }
    void fail(const char *key, std::string what, const Json &found)
    {
        if (!m_error)
            m_error = Error::make(Code::BadData, std::move(what), *key ? m_path + "." + key : m_path)
                          .withFound(dumpJson(found).substr(0, 60));
    }
    Status done()
    {
        if (!m_error && m_taken != m_json.size())
            m_error = Error::make(Code::BadData, "a key that a program does not have", m_path);
        return m_error ? Status(*m_error) : Status();
    }

private:
    void readInteger(const Json &found, const char *key, std::int64_t &value, std::int64_t least,
                     std::int64_t most)
    {
        const bool tooLarge = found.is_number_unsigned()
            && found.get<std::uint64_t>()
                > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (!found.is_number_integer() || tooLarge || found.get<std::int64_t>() < least
            || found.get<std::int64_t>() > most)
            fail(key,
                 most < least
                     ? "refers to an empty list"
                     : "must be an integer from " + std::to_string(least) + " to " + std::to_string(most),
                 found);
        else
            value = found.get<std::int64_t>();
    }

    const Json &m_json;
    std::string m_path;
    std::optional<Error> m_error;
    std::size_t m_taken = 0;
};

constexpr std::int64_t mostBytes = std::int64_t(1) << 60;
constexpr std::int64_t mostCount = std::numeric_limits<std::int32_t>::max();

/// How many of each there are: what indices are checked against.
struct Counts {
    std::size_t groups = 0, arenas = 0, buffers = 0, tensors = 0, buckets = 0, ops = 0;
};

bool shapeFits(const std::vector<std::int64_t> &shape)
{
    std::int64_t numel = 1;
    for (const std::int64_t size : shape) {
        if (size != 0 && numel > mostBytes / size)
            return false;
        numel *= size;
    }
    return true;
}

void readShape(ObjectReader &reader, const Json &json, std::vector<std::int64_t> &shape,
               const char *key = "shape", bool required = true)
{
    reader.list(key, shape, 0, mostBytes, required);
    if (!shapeFits(shape))
        reader.fail(key, "too large", json);
}

/// [[global, local, copies], …]
void readSections(ObjectReader &reader, const Json &json, std::vector<Section> &sections)
{
    const Json *found = reader.take("sections", false);
    if (found == nullptr)
        return;
    for (const Json &item : *found) {
        const bool whole =
            item.is_array() && item.size() == 3 && std::all_of(item.begin(), item.end(), [](const Json &n) {
                return n.is_number_unsigned() && n.get<std::uint64_t>() <= mostCount;
            });
        if (!whole) {
            reader.fail("sections", "must be a list of [global, local, copies]", json);
            return;
        }
        sections.push_back(
            {item[0].get<std::int64_t>(), item[1].get<std::int64_t>(), item[2].get<std::int32_t>()});
    }
}

Status read(ObjectReader &reader, const Json &json, const Counts &, Group &group)
{
    reader.text("name", group.name);
    reader.integer("size", group.size, 2, mostCount);
    reader.name("pick", group.pick, static_cast<int>(Pick::Ends) + 1, false);
    if (const Json *axes = reader.take("axes", true)) {
        for (const Json &axis : *axes) {
            if (axis.is_string())
                group.axes.push_back(axis.get<std::string>());
            else
                reader.fail("axes", "must be a list of names", json);
        }
    }
    return reader.done();
}

Status read(ObjectReader &reader, const Json &, const Counts &, Arena &arena)
{
    reader.name("kind", arena.kind, memoryKindCount);
    reader.integer("bytes", arena.bytes, 0, mostBytes);
    reader.flag("shared", arena.shared);
    reader.flag("disk", arena.disk);
    return reader.done();
}

Status read(ObjectReader &reader, const Json &json, const Counts &counts, Buffer &buffer)
{
    reader.text("name", buffer.name);
    reader.name("kind", buffer.kind, memoryKindCount);
    reader.name("dtype", buffer.dtype, static_cast<int>(DType::U8) + 1);
    readShape(reader, json, buffer.shape);
    reader.index("arena", buffer.arena, counts.arenas);
    reader.integer("offset", buffer.offset, 0, mostBytes);
    reader.integer("bytes", buffer.bytes, 0, mostBytes);
    reader.flag("shared", buffer.shared);
    reader.flag("disk", buffer.disk);
    reader.flag("persistent", buffer.persistent);
    reader.index("parent", buffer.parent, counts.buffers, false);
    reader.integer("view_offset", buffer.viewOffset, 0, mostBytes, false);
    reader.index("slice_group", buffer.sliceGroup, counts.groups, false);
    reader.integer("slice_shift", buffer.sliceShift, -mostCount, mostCount, false);
    reader.index("tensor", buffer.tensor, counts.tensors, false);
    return reader.done();
}

Status read(ObjectReader &reader, const Json &json, const Counts &counts, Tensor &tensor)
{
    reader.text("name", tensor.name);
    readShape(reader, json, tensor.shape);
    tensor.global = tensor.shape;
    readShape(reader, json, tensor.global, "global", false);
    reader.integer("index", tensor.index, 0, mostCount);
    reader.integer("axis", tensor.axis, 0, 1, false);
    readSections(reader, json, tensor.sections);
    reader.flag("counted", tensor.counted);
    reader.index("bucket", tensor.bucket, counts.buckets);
    reader.integer("offset", tensor.offset, 0, mostBytes);
    reader.flag("decay", tensor.decay, true);
    reader.index("param", tensor.param, counts.buffers, false);
    reader.index("grad", tensor.grad, counts.buffers, false);
    RY_TRY(reader.done());
    tensor.numel = numelOf(tensor.shape);
    return {};
}

Status read(ObjectReader &reader, const Json &, const Counts &counts, Bucket &bucket)
{
    reader.integer("numel", bucket.numel, 0, mostBytes);
    reader.integer("padded", bucket.padded, 0, mostBytes);
    reader.integer("slices", bucket.slices, 1, mostCount);
    reader.index("group", bucket.group, counts.groups, false);
    reader.index("replicas", bucket.replicas, counts.groups, false);
    reader.index("tie", bucket.tie, counts.groups, false);
    reader.list("tensors", bucket.tensors, 0, static_cast<std::int64_t>(counts.tensors) - 1);
    reader.index("param", bucket.param, counts.buffers, false);
    reader.index("grad", bucket.grad, counts.buffers, false);
    reader.index("param_slice", bucket.paramSlice, counts.buffers);
    reader.index("grad_slice", bucket.gradSlice, counts.buffers, false);
    reader.index("exp1", bucket.exp1, counts.buffers, false);
    reader.index("exp2", bucket.exp2, counts.buffers, false);
    reader.index("master", bucket.master, counts.buffers, false);
    reader.index("error", bucket.error, counts.buffers, false);
    return reader.done();
}

Status read(ObjectReader &reader, const Json &, const Counts &counts, Op &op)
{
    const std::int64_t lastBuffer = static_cast<std::int64_t>(counts.buffers) - 1;
    reader.name("kind", op.kind, static_cast<int>(OpKind::Optimizer) + 1);
    reader.name("unit", op.unit.kind, static_cast<int>(UnitKind::Head) + 1, false);
    reader.integer("layer", op.unit.layer, 0, mostCount, false);
    reader.name("segment", op.segment, segmentCount, false);
    reader.integer("microbatch", op.microbatch, 0, mostCount, false);
    reader.integer("chunk", op.chunk, 0, mostCount, false);
    reader.integer("row_begin", op.rowBegin, 0, mostBytes, false);
    reader.integer("row_end", op.rowEnd, 0, mostBytes, false);
    reader.name("stream", op.stream, streamCount);
    reader.index("group", op.group, counts.groups, false);
    reader.integer("peer", op.peer, -mostCount, mostCount, false);
    reader.integer("channel", op.channel, 0, channelCount - 1, false);
    reader.flag("accumulate", op.accumulate);
    reader.list("reads", op.reads, 0, lastBuffer);
    reader.list("writes", op.writes, 0, lastBuffer);
    reader.list("releases", op.releases, 0, lastBuffer, false);
    reader.list("waits", op.waits, 0, static_cast<std::int64_t>(counts.ops) - 1, false);
    reader.integer("payload", op.payload, 0, mostBytes, false);
    reader.integer("flops", op.flops, 0, std::numeric_limits<std::int64_t>::max(), false);
    return reader.done();
}

template<typename T>
Status readAll(const Json &document, const char *key, const std::string &name, const Counts &counts,
               std::vector<T> &list)
{
    const Json &array = document.at(key); // readProgram has counted it
    list.reserve(array.size());
    for (const Json &json : array) {
        const std::string path = name + ": " + key + "[" + std::to_string(list.size()) + "]";
        ObjectReader reader(json, path);
        T item;
        if constexpr (requires { item.id; }) {
            reader.index("id", item.id, array.size());
            if (item.id != static_cast<std::int32_t>(list.size()))
                reader.fail("id", "ids must be dense from 0", json);
        }
        RY_TRY(read(reader, json, counts, item));
        list.push_back(std::move(item));
    }
    return {};
}

Result<std::size_t> countOf(const Json &document, const char *key, const std::string &name)
{
    const auto found = document.find(key);
    if (found == document.end() || !found->is_array())
        return Error::make(Code::BadData, "must be a list", name + ": " + key);
    if (found->size() > static_cast<std::size_t>(mostCount))
        return Error::make(Code::BadData, "too long", name + ": " + key);
    return found->size();
}

} // namespace

Result<StepProgram> readProgram(const Json &document, const std::string &name)
{
    RY_TRY(checkSchema(document, schemaFamily, 1, name));
    StepProgram program;
    Counts counts;
    RY_ASSIGN(counts.groups, countOf(document, "groups", name));
    RY_ASSIGN(counts.arenas, countOf(document, "arenas", name));
    RY_ASSIGN(counts.buffers, countOf(document, "buffers", name));
    RY_ASSIGN(counts.tensors, countOf(document, "tensors", name));
    RY_ASSIGN(counts.buckets, countOf(document, "buckets", name));
    RY_ASSIGN(counts.ops, countOf(document, "ops", name));

    ObjectReader reader(document, name);
    for (const char *key : {"schema", "groups", "arenas", "buffers", "tensors", "buckets", "ops"})
        reader.take(key, true);
    reader.text("digest", program.digest);
    reader.name("kind", program.kind, static_cast<int>(ProgramKind::Gather) + 1);
    reader.index("stats", program.stats, counts.buffers);
    if (const Json *role = reader.take("role", true)) {
        ObjectReader roleReader(*role, name + ": role");
        roleReader.integer("stage", program.role.stage, 0, mostCount);
        RY_TRY(roleReader.done());
    }
    RY_TRY(reader.done());
    RY_TRY(readAll(document, "groups", name, counts, program.groups));
    RY_TRY(readAll(document, "arenas", name, counts, program.arenas));
    RY_TRY(readAll(document, "buffers", name, counts, program.buffers));
    RY_TRY(readAll(document, "tensors", name, counts, program.tensors));
    RY_TRY(readAll(document, "buckets", name, counts, program.buckets));
    RY_TRY(readAll(document, "ops", name, counts, program.ops));
    if (const std::string digest = digestOf(program); !program.digest.empty() && program.digest != digest) {
        return Error::make(Code::BadData, "the program is not the one that its digest names",
                           name + ": digest")
            .withFound(program.digest)
            .withExpected(digest);
    }
    return program;
}

} // namespace rankyard::plan
