// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

namespace rankyard {

/// "<version>-<12 hex>": the digest of the sources of engine, remote and app. Agent, workers and clients of one run must agree.
const char *buildId();

} // namespace rankyard
