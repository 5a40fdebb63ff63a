// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/plan/mutate.h"

#include <algorithm>
#include <functional>

namespace rankyard::plan {

namespace {

using Random = std::mt19937_64;

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

void renumber(StepProgram &program, const std::vector<OpId> &moved)
{
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
        Op &op = program.ops[i];
        op.id = static_cast<OpId>(i);
        std::vector<OpId> waits;
        for (const OpId wait : op.waits) {
            if (moved[at(wait)] != none)
                waits.push_back(moved[at(wait)]);
        }
        op.waits = std::move(waits);
    }
}

template<typename P>
Op *pickOp(StepProgram &program, Random &random, P &&wanted)
{
    std::vector<Op *> found;
    for (Op &op : program.ops) {
        if (wanted(op))
            found.push_back(&op);
    }
    return found.empty() ? nullptr : found[random() % found.size()];
}

template<typename P>
bool dropOp(StepProgram &program, Random &random, P &&wanted)
{
    const Op *op = pickOp(program, random, wanted);
    if (op == nullptr)
        return false;
    removeOp(program, op->id);
    return true;
}

template<typename P>
bool doubleOp(StepProgram &program, Random &random, P &&wanted)
{
    const Op *op = pickOp(program, random, wanted);
    if (op == nullptr)
        return false;
    insertCopy(program, op->id + 1, *op);
    return true;
}

auto isKind(OpKind kind)
{
    return [kind](const Op &op) { return op.kind == kind; };
}
auto isBucketReduce()
{
    return [](const Op &op) {
        return op.chunk != none && op.unit.kind == UnitKind::None
            && (op.kind == OpKind::ReduceScatter || op.kind == OpKind::AllReduce);
    };
}
auto isOfUnit()
{
    return [](const Op &op) { return op.unit.kind != UnitKind::None && !isTransfer(op.kind); };
}
auto isBucketGather()
{
    return [](const Op &op) { return op.kind == OpKind::AllGather && op.unit.kind == UnitKind::None; };
}
auto isStatsReduce()
{
    return [](const Op &op) {
        return op.kind == OpKind::AllReduce && op.chunk == none && op.unit.kind == UnitKind::None;
    };
}

/// Another buffer that looks the same.
BufferId lookalike(const StepProgram &program, BufferId id, Random &random)
{
    const Buffer &wanted = program.buffer(id);
    std::vector<BufferId> found;
    for (const Buffer &buffer : program.buffers) {
        if (buffer.id != id && buffer.kind == wanted.kind && buffer.shape == wanted.shape
            && buffer.dtype == wanted.dtype && (buffer.parent == none) == (wanted.parent == none))
            found.push_back(buffer.id);
    }
    return found.empty() ? none : found[random() % found.size()];
}

bool changeOperand(StepProgram &program, Random &random, std::vector<BufferId> Op::*list)
{
    Op *op = pickOp(program, random,
                    [&](const Op &o) { return !(o.*list).empty() && o.unit.kind != UnitKind::None; });
    if (op == nullptr)
        return false;
    BufferId &id = (op->*list)[random() % (op->*list).size()];
    const BufferId other = lookalike(program, id, random);
    if (other == none || program.buffer(id).kind == MemoryKind::Workspace)
        return false;
    id = other;
    return true;
}

bool swapOperands(StepProgram &program, Random &random, std::vector<BufferId> Op::*list)
{
    Op *op = pickOp(program, random, [&](const Op &o) { return (o.*list).size() > 1; });
    if (op == nullptr)
        return false;
    std::vector<BufferId> &ids = op->*list;
    const std::size_t first = random() % (ids.size() - 1);
    std::swap(ids[first], ids[first + 1]);
    return true;
}

bool dropOperand(StepProgram &program, Random &random, std::vector<BufferId> Op::*list)
{
    Op *op = pickOp(program, random, [&](const Op &o) { return !(o.*list).empty(); });
    if (op == nullptr)
        return false;
    (op->*list).erase((op->*list).begin() + static_cast<std::ptrdiff_t>(random() % (op->*list).size()));
    return true;
}

bool isRoot(const Buffer &buffer) { return buffer.parent == none; }

bool dropWait(StepProgram &program, Random &random)
{
    Op *op =
        pickOp(program, random, [](const Op &o) { return !o.waits.empty() && o.kind != OpKind::LoadBatch; });
    if (op == nullptr)
        return false;
    op->waits.erase(op->waits.begin() + static_cast<std::ptrdiff_t>(random() % op->waits.size()));
    return true;
}

bool waitForLater(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, [&](const Op &o) { return at(o.id) + 1 < program.ops.size(); });
    const OpId later = op->id + 1 + static_cast<OpId>(random() % (program.ops.size() - at(op->id) - 1));
    op->waits.push_back(later);
    return true;
}

bool releaseEarly(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, [](const Op &o) { return !o.releases.empty(); });
    if (op == nullptr || op->id == 0)
        return false;
    const BufferId id = op->releases.back();
    op->releases.pop_back();
    program.ops[random() % at(op->id)].releases.push_back(id);
    return true;
}

bool dropRelease(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, [](const Op &o) { return !o.releases.empty(); });
    if (op == nullptr)
        return false;
    op->releases.pop_back();
    return true;
}

bool doubleRelease(StepProgram &program, Random &random)
{
    const Op *op = pickOp(program, random, [&](const Op &o) {
        return !o.releases.empty() && at(o.id) + 1 < program.ops.size();
    });
    if (op == nullptr)
        return false;
    program.ops[at(op->id) + 1].releases.push_back(op->releases.front());
    return true;
}

bool releaseState(StepProgram &program, Random &random)
{
    const Tensor &tensor = program.tensors[random() % program.tensors.size()];
    if (program.buckets[at(tensor.bucket)].param == none)
        return false;
    program.ops.back().releases.push_back(program.buckets[at(tensor.bucket)].param);
    return true;
}

/// Two operands of one op are alive together by all means.
bool overlap(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, [&](const Op &o) { return o.reads.size() + o.writes.size() > 1; });
    std::vector<BufferId> ids = op->reads;
    ids.insert(ids.end(), op->writes.begin(), op->writes.end());
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        Buffer &a = program.buffers[at(ids[i])];
        const Buffer &b = program.buffer(ids[i + 1]);
        if (a.id != b.id && isRoot(a) && isRoot(b) && a.arena == b.arena && a.bytes <= b.bytes
            && a.bytes > 0) {
            a.offset = b.offset;
            return true;
        }
    }
    return false;
}

bool misalign(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random,
                    [&](const Op &o) { return !o.writes.empty() && isRoot(program.buffer(o.writes[0])); });
    program.buffers[at(op->writes[0])].offset += 4;
    return true;
}

bool shrinkArena(StepProgram &program, Random &random)
{
    Arena &arena = program.arenas[random() % program.arenas.size()];
    // An eval program need not reach the end of an arena that the train program sized.
    const bool reached =
        std::any_of(program.buffers.begin(), program.buffers.end(), [&](const Buffer &buffer) {
            return isRoot(buffer) && buffer.arena == arena.id && buffer.bytes > 0
                && buffer.offset + buffer.bytes > arena.bytes - 64;
        });
    if (!reached)
        return false;
    arena.bytes -= 64;
    return true;
}

bool swapNeighbours(StepProgram &program, Random &random)
{
    std::vector<OpId> found;
    for (std::size_t i = 0; i + 1 < program.ops.size(); ++i) {
        const Op &a = program.ops[i];
        const Op &b = program.ops[i + 1];
        const bool dependent = std::any_of(b.reads.begin(), b.reads.end(), [&](BufferId id) {
            return std::find(a.writes.begin(), a.writes.end(), id) != a.writes.end();
        });
        if (dependent)
            found.push_back(a.id);
    }
    if (found.empty())
        return false;
    const OpId first = found[random() % found.size()];
    moveOp(program, first, first + 1);
    return true;
}

bool wrongGroup(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, [](const Op &o) { return isCollective(o.kind); });
    if (op == nullptr || program.groups.size() < 2)
        return false;
    op->group = static_cast<GroupId>((at(op->group) + 1) % program.groups.size());
    return true;
}

bool wrongPayload(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, [](const Op &o) { return isCollective(o.kind); });
    if (op == nullptr)
        return false;
    op->payload /= 2;
    return true;
}

bool wrongCollective(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, [](const Op &o) { return isCollective(o.kind); });
    if (op == nullptr)
        return false;
    op->kind = op->kind == OpKind::AllReduce ? OpKind::ReduceScatter
        : op->kind == OpKind::ReduceScatter  ? OpKind::AllReduce
                                             : OpKind::ReduceScatter;
    return true;
}

bool reduceEarly(StepProgram &program, Random &random)
{
    const Op *op = pickOp(program, random, isBucketReduce());
    if (op == nullptr)
        return false;
    // Before the op that completes the bucket.
    const Bucket &bucket = program.buckets[at(op->chunk)];
    for (OpId id = op->id - 1; id >= 0; --id) {
        for (const BufferId write : program.op(id).writes) {
            if (program.buffer(write).parent == bucket.grad) {
                moveOp(program, op->id, id);
                return true;
            }
        }
    }
    return false;
}

auto isStep()
{
    return [](const Op &op) {
        return op.unit.kind == UnitKind::None && (op.kind == OpKind::Shift || op.kind == OpKind::Add);
    };
}

bool otherPeer(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, isKind(OpKind::Shift));
    if (op == nullptr || program.groups[at(op->group)].size < 3)
        return false;
    op->peer = op->peer == 1 ? 2 : 1;
    return true;
}

/// What an update has made goes home before the update.
bool copyEarly(StepProgram &program, Random &random)
{
    const Op *update = pickOp(program, random, isKind(OpKind::Optimizer));
    if (update == nullptr)
        return false;
    const Op *home = pickOp(program, random, [&](const Op &op) {
        return op.kind == OpKind::Copy && op.id > update->id
            && std::find(update->writes.begin(), update->writes.end(), op.reads[0]) != update->writes.end();
    });
    if (home == nullptr)
        return false;
    moveOp(program, home->id, update->id);
    return true;
}

bool copyBack(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, isKind(OpKind::Copy));
    if (op == nullptr)
        return false;
    std::swap(op->reads, op->writes);
    return true;
}

bool wrongGroupRows(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, [](const Op &o) {
        return (o.kind == OpKind::Copy || o.kind == OpKind::Optimizer) && o.rowEnd - o.rowBegin > 1;
    });
    if (op == nullptr)
        return false;
    (random() % 2 == 0 ? op->rowBegin : op->rowEnd) += 1;
    return true;
}

bool encodeEarly(StepProgram &program, Random &random)
{
    const Op *op = pickOp(program, random, [&](const Op &o) {
        return o.kind == OpKind::Encode
            || (o.kind == OpKind::Add
                && program.buffer(o.reads[0]).dtype != program.buffer(o.writes[0]).dtype);
    });
    if (op == nullptr)
        return false;
    for (OpId id = op->id - 1; id >= 0; --id) {
        for (const BufferId write : program.op(id).writes) {
            if (program.buffer(write).parent == op->reads[0]) {
                moveOp(program, op->id, id);
                return true;
            }
        }
    }
    return false;
}

bool otherCodes(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, isKind(OpKind::Decode));
    const Op *other = pickOp(program, random, isKind(OpKind::Decode));
    if (op == nullptr || op == other)
        return false;
    op->reads = other->reads;
    return true;
}

bool gatherLate(StepProgram &program, Random &random)
{
    const Op *op = pickOp(program, random, isBucketGather());
    if (op == nullptr)
        return false;
    moveOp(program, op->id, static_cast<OpId>(program.ops.size()) - 1);
    return true;
}

bool updateEarly(StepProgram &program, Random &random)
{
    const Op *update = pickOp(program, random, isKind(OpKind::Optimizer));
    const Op *scalars = pickOp(program, random, isKind(OpKind::StepScalars));
    if (update == nullptr || scalars == nullptr)
        return false;
    moveOp(program, update->id, scalars->id);
    return true;
}

bool normLate(StepProgram &program, Random &random)
{
    const Op *norm = pickOp(program, random, isKind(OpKind::GradNorm));
    const Op *reduce = pickOp(program, random, isStatsReduce());
    if (norm == nullptr || reduce == nullptr)
        return false;
    moveOp(program, norm->id, reduce->id);
    return true;
}

bool flipAccumulate(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, [&](const Op &o) {
        return std::any_of(o.writes.begin(), o.writes.end(),
                           [&](BufferId id) { return program.buffer(id).kind == MemoryKind::Grads; })
            && o.unit.kind != UnitKind::None;
    });
    if (op == nullptr)
        return false;
    op->accumulate = !op->accumulate;
    return true;
}

/// Reads a buffer of another micro-batch that has the same name otherwise.
bool otherMicrobatch(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, [](const Op &o) { return o.microbatch > 0 && !o.reads.empty(); });
    if (op == nullptr)
        return false;
    for (BufferId &id : op->reads) {
        const std::string &name = program.buffer(id).name;
        const std::size_t mark = name.rfind('@');
        if (mark == std::string::npos)
            continue;
        for (const Buffer &buffer : program.buffers) {
            if (buffer.name == name.substr(0, mark) + "@" + std::to_string(op->microbatch - 1)) {
                id = buffer.id;
                return true;
            }
        }
    }
    return false;
}

bool wrongRows(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random,
                    [](const Op &o) { return o.segment == Segment::Loss && !isTransfer(o.kind); });
    if (op == nullptr)
        return false;
    if (random() % 2 == 0)
        op->rowBegin += 1;
    else
        op->rowEnd -= 1;
    return true;
}

bool wrongBucket(StepProgram &program, Random &random)
{
    Op *op =
        pickOp(program, random, [](const Op &o) { return o.unit.kind == UnitKind::None && o.chunk != none; });
    if (op == nullptr)
        return false;
    op->chunk = program.buckets.size() > 1
        ? static_cast<std::int32_t>((at(op->chunk) + 1) % program.buckets.size())
        : op->chunk + 1;
    return true;
}

bool wrongLayer(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, [](const Op &o) { return o.unit.layer != none; });
    if (op == nullptr)
        return false;
    op->unit.layer += 1;
    return true;
}

bool wrongSegment(StepProgram &program, Random &random)
{
    Op *op = pickOp(program, random, isOfUnit());
    if (op == nullptr)
        return false;
    op->segment = op->segment == Segment::Loss ? Segment::Norm
                                               : static_cast<Segment>(static_cast<int>(op->segment) + 1);
    return true;
}

bool wrongBytes(StepProgram &program, Random &random)
{
    program.buffers[random() % program.buffers.size()].bytes += 4;
    return true;
}

bool wrongView(StepProgram &program, Random &random)
{
    const Tensor &tensor = program.tensors[random() % program.tensors.size()];
    if (tensor.param == none)
        return false;
    Buffer &view = program.buffers[at(tensor.param)];
    const auto size = static_cast<std::int64_t>(bytesOf(view.dtype));
    view.viewOffset += view.viewOffset > 0 ? -size : size;
    view.offset = program.buffer(view.parent).offset + view.viewOffset;
    return true;
}

bool wrongSlices(StepProgram &program, Random &random)
{
    Bucket &bucket = program.buckets[random() % program.buckets.size()];
    bucket.slices += 1;
    return true;
}

} // namespace

void removeOp(StepProgram &program, OpId id)
{
    std::vector<OpId> moved(program.ops.size());
    for (std::size_t i = 0; i < moved.size(); ++i)
        moved[i] = static_cast<OpId>(i) < id ? static_cast<OpId>(i)
            : static_cast<OpId>(i) == id     ? none
                                             : static_cast<OpId>(i) - 1;
    program.ops.erase(program.ops.begin() + id);
    renumber(program, moved);
}

void insertCopy(StepProgram &program, OpId before, Op op)
{
    std::vector<OpId> moved(program.ops.size());
    for (std::size_t i = 0; i < moved.size(); ++i)
        moved[i] = static_cast<OpId>(i) < before ? static_cast<OpId>(i) : static_cast<OpId>(i) + 1;
    op.releases.clear();
    program.ops.insert(program.ops.begin() + before, std::move(op));
    renumber(program, moved);
}

void moveOp(StepProgram &program, OpId from, OpId to)
{
    std::vector<OpId> moved(program.ops.size());
    for (std::size_t i = 0; i < moved.size(); ++i) {
        const auto id = static_cast<OpId>(i);
        moved[i] = id == from                    ? to
            : from < to && id > from && id <= to ? id - 1
            : to < from && id >= to && id < from ? id + 1
                                                 : id;
    }
    if (from < to)
        std::rotate(program.ops.begin() + from, program.ops.begin() + from + 1, program.ops.begin() + to + 1);
    else
        std::rotate(program.ops.begin() + to, program.ops.begin() + from, program.ops.begin() + from + 1);
    renumber(program, moved);
}

const std::vector<Mutation> &mutations()
{
    using P = StepProgram;
    using R = Random;
    static const std::vector<Mutation> all = {
        {"drop a wait", dropWait, false},
        {"wait for a later op", waitForLater, false},
        {"release early", releaseEarly, false},
        {"drop a release", dropRelease, false},
        {"double a release", doubleRelease, false},
        {"release parameters", releaseState, false},
        {"overlapping placement", overlap, false},
        {"misaligned placement", misalign, false},
        {"arena too small", shrinkArena, false},
        {"swap dependent ops", swapNeighbours, false},
        {"wrong bytes", wrongBytes, false},
        {"view shifted", wrongView, false},
        {"wrong number of slices", wrongSlices, false},
        {"drop a bucket's reduction", [](P &p, R &r) { return dropOp(p, r, isBucketReduce()); }, true},
        {"double a bucket's reduction", [](P &p, R &r) { return doubleOp(p, r, isBucketReduce()); }, true},
        {"reduce too early", reduceEarly, true},
        {"skip a gather: stale parameters", [](P &p, R &r) { return dropOp(p, r, isBucketGather()); }, true},
        {"double a gather", [](P &p, R &r) { return doubleOp(p, r, isBucketGather()); }, true},
        {"gather too late", gatherLate, true},
        {"skip the reduction of stats", [](P &p, R &r) { return dropOp(p, r, isStatsReduce()); }, true},
        {"double the reduction of stats", [](P &p, R &r) { return doubleOp(p, r, isStatsReduce()); }, true},
        {"wrong group", wrongGroup, true},
        {"wrong payload", wrongPayload, true},
        {"wrong collective", wrongCollective, true},
        {"drop a gradient norm", [](P &p, R &r) { return dropOp(p, r, isKind(OpKind::GradNorm)); }, true},
        {"double a gradient norm", [](P &p, R &r) { return doubleOp(p, r, isKind(OpKind::GradNorm)); }, true},
        {"gradient norm after the reduction of stats", normLate, true},
        {"drop an update", [](P &p, R &r) { return dropOp(p, r, isKind(OpKind::Optimizer)); }, true},
        {"double an update", [](P &p, R &r) { return doubleOp(p, r, isKind(OpKind::Optimizer)); }, true},
        {"update before the scalars", updateEarly, true},
        {"drop the scalars", [](P &p, R &r) { return dropOp(p, r, isKind(OpKind::StepScalars)); }, true},
        {"double the scalars", [](P &p, R &r) { return doubleOp(p, r, isKind(OpKind::StepScalars)); }, true},
        {"drop a unit's op", [](P &p, R &r) { return dropOp(p, r, isOfUnit()); }, true},
        {"double a unit's op", [](P &p, R &r) { return doubleOp(p, r, isOfUnit()); }, true},
        {"drop a batch", [](P &p, R &r) { return dropOp(p, r, isKind(OpKind::LoadBatch)); }, true},
        {"drop a weight gradient", [](P &p, R &r) { return dropOp(p, r, isKind(OpKind::BackwardWeight)); },
         true},
        {"flip accumulate", flipAccumulate, true},
        {"read another micro-batch", otherMicrobatch, true},
        {"read a lookalike", [](P &p, R &r) { return changeOperand(p, r, &Op::reads); }, true},
        {"write a lookalike", [](P &p, R &r) { return changeOperand(p, r, &Op::writes); }, true},
        {"swap reads", [](P &p, R &r) { return swapOperands(p, r, &Op::reads); }, true},
        {"swap writes", [](P &p, R &r) { return swapOperands(p, r, &Op::writes); }, true},
        {"drop a read", [](P &p, R &r) { return dropOperand(p, r, &Op::reads); }, true},
        {"drop a write", [](P &p, R &r) { return dropOperand(p, r, &Op::writes); }, true},
        {"drop an encoding", [](P &p, R &r) { return dropOp(p, r, isKind(OpKind::Encode)); }, true},
        {"double an encoding", [](P &p, R &r) { return doubleOp(p, r, isKind(OpKind::Encode)); }, true},
        {"drop a decoding", [](P &p, R &r) { return dropOp(p, r, isKind(OpKind::Decode)); }, true},
        {"double a decoding", [](P &p, R &r) { return doubleOp(p, r, isKind(OpKind::Decode)); }, true},
        {"drop a step", [](P &p, R &r) { return dropOp(p, r, isStep()); }, true},
        {"double a step", [](P &p, R &r) { return doubleOp(p, r, isStep()); }, true},
        {"a step to another peer", otherPeer, true},
        {"drop a copy", [](P &p, R &r) { return dropOp(p, r, isKind(OpKind::Copy)); }, true},
        {"double a copy", [](P &p, R &r) { return doubleOp(p, r, isKind(OpKind::Copy)); }, true},
        {"copy too early", copyEarly, true},
        {"copy another way", copyBack, true},
        {"wrong rows of a sub-group", wrongGroupRows, true},
        {"encode or convert too early", encodeEarly, true},
        {"another bucket's codes", otherCodes, true},
        {"wrong rows of the loss", wrongRows, true},
        {"wrong bucket", wrongBucket, true},
        {"wrong layer", wrongLayer, true},
        {"wrong segment", wrongSegment, true},
    };
    return all;
}

bool mutate(const Mutation &mutation, const spec::JobSpec &job, StepProgram &program, std::mt19937_64 &random)
{
    if (!mutation.relink)
        return mutation.apply(program, random);
    for (Op &op : program.ops) {
        op.waits.clear();
        op.releases.clear();
    }
    if (!mutation.apply(program, random))
        return false;
    dependPass({job, program});
    std::vector<StepProgram> programs = {program};
    placePass(programs);
    program = std::move(programs.front());
    return true;
}

} // namespace rankyard::plan
