// SPDX-License-Identifier: GPL-3.0-or-later
// The precompiled header needs a target with one source.
