// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/kinds.h"

#include <QCoreApplication>

namespace rankyard::ui {

namespace {

QString tr(const char *text) { return QCoreApplication::translate("Kinds", text); }

} // namespace

Kind kindOf(plan::MemoryKind kind)
{
    switch (kind) {
    case plan::MemoryKind::Params:
        return Kind::Parameters;
    case plan::MemoryKind::Grads:
        return Kind::Gradients;
    case plan::MemoryKind::Optimizer:
        return Kind::OptimizerState;
    case plan::MemoryKind::Activations:
        return Kind::Activations;
    case plan::MemoryKind::Gathered:
        return Kind::Gathered;
    case plan::MemoryKind::Buckets:
        return Kind::Buckets;
    case plan::MemoryKind::Workspace:
        return Kind::Workspace;
    case plan::MemoryKind::Host:
        break;
    }
    return Kind::Host;
}

QString wordOf(plan::MemoryKind kind)
{
    switch (kind) {
    case plan::MemoryKind::Params:
        return tr("parameters");
    case plan::MemoryKind::Grads:
        return tr("gradients");
    case plan::MemoryKind::Optimizer:
        return tr("optimizer");
    case plan::MemoryKind::Activations:
        return tr("activations");
    case plan::MemoryKind::Gathered:
        return tr("gathered");
    case plan::MemoryKind::Buckets:
        return tr("buckets");
    case plan::MemoryKind::Workspace:
        return tr("workspace");
    case plan::MemoryKind::Host:
        break;
    }
    return tr("host");
}

Kind kindOf(const plan::Op &op, const plan::StepProgram &program)
{
    switch (op.kind) {
    case plan::OpKind::Forward:
        return Kind::Forward;
    case plan::OpKind::BackwardInput:
        return Kind::InputGradient;
    case plan::OpKind::BackwardWeight:
        return Kind::WeightGradient;
    case plan::OpKind::Recompute:
        return Kind::Recompute;
    case plan::OpKind::GradNorm:
    case plan::OpKind::StepScalars:
    case plan::OpKind::Optimizer:
        return Kind::OptimizerStep;
    case plan::OpKind::Send:
    case plan::OpKind::Recv:
        return Kind::Pipeline;
    case plan::OpKind::AllReduce:
    case plan::OpKind::ReduceScatter:
    case plan::OpKind::AllGather:
    case plan::OpKind::Shift:
        break;
    default:
        return Kind::Copy;
    }
    const bool tensor = op.stream == plan::Stream::Tensor
        || (op.group != plan::none && program.groups[static_cast<std::size_t>(op.group)].name == "tp");
    return tensor ? Kind::TensorParallel : Kind::DataParallel;
}

QString wordOf(Kind kind)
{
    switch (kind) {
    case Kind::Forward:
        return tr("forward");
    case Kind::InputGradient:
        return tr("input gradient");
    case Kind::WeightGradient:
        return tr("weight gradient");
    case Kind::Recompute:
        return tr("recompute");
    case Kind::TensorParallel:
        return tr("tensor parallel");
    case Kind::DataParallel:
        return tr("data parallel");
    case Kind::Pipeline:
        return tr("pipeline");
    case Kind::OptimizerStep:
        return tr("optimizer");
    case Kind::Bubble:
        return tr("waiting");
    case Kind::Copy:
        return tr("copies");
    default:
        break;
    }
    return {};
}

} // namespace rankyard::ui
