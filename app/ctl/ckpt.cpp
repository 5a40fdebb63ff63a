// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/command.h"
#include "app/ctl/run_json.h"
#include "engine/base/units.h"
#include "engine/checkpoint/store.h"
#include "engine/store/run_store.h"

namespace rankyard::ctl {

namespace {

/// A folder of checkpoints as it is, or a run's.
Result<std::filesystem::path> checkpointFolder(const std::string &runOrFolder)
{
    std::error_code error;
    if (std::filesystem::is_directory(runOrFolder, error))
        return std::filesystem::path(runOrFolder);
    RY_ASSIGN(const auto store, store::RunStore::open(store::RunStore::defaultFile()));
    RY_ASSIGN(const auto run, store->run(runOrFolder));
    if (const auto job = parseJson(run.job, "job"); job && job->is_object()) {
        const Json settings = job->value("run", Json::object());
        if (const auto at = settings.find("checkpoint_dir"); at != settings.end() && at->is_string())
            return std::filesystem::path(at->get<std::string>());
    }
    return std::filesystem::path(run.runDir) / "ckpt";
}

OrderedJson checkpointJson(const checkpoint::ListedCheckpoint &listed)
{
    OrderedJson json = {
        {"folder", listed.folder.string()}, {"step", listed.step}, {"ok", listed.manifest.ok()}};
    if (!listed.manifest) {
        json["error"] = Json(listed.manifest.error());
        return json;
    }
    std::int64_t bytes = 0;
    for (const checkpoint::FileEntry &file : listed.manifest->files)
        bytes += file.size;
    json["bytes"] = bytes;
    json["files"] = listed.manifest->files.size();
    json["tensors"] = listed.manifest->tensors.size();
    json["written"] = timeText(listed.manifest->wallNs);
    json["run"] = listed.manifest->run;
    json["consumed_samples"] = listed.manifest->consumedSamples;
    return json;
}

Result<Exit> list(const std::string &what, checkpoint::Verify verify, Output &output)
{
    RY_ASSIGN(const auto folder, checkpointFolder(what));
    RY_ASSIGN(const auto listed, checkpoint::listCheckpoints(folder, verify));
    OrderedJson rows = OrderedJson::array();
    std::vector<std::vector<std::string>> lines = {{"step", "state", "files", "bytes", "written"}};
    const checkpoint::ListedCheckpoint *bad = nullptr;
    for (const checkpoint::ListedCheckpoint &entry : listed) {
        const OrderedJson json = checkpointJson(entry);
        if (entry.manifest) {
            lines.push_back({std::to_string(entry.step), "ok", json["files"].dump(),
                             formatBytes(json["bytes"].get<double>()), json["written"].get<std::string>()});
        } else {
            lines.push_back({std::to_string(entry.step), entry.manifest.error().text()});
            bad = bad ? bad : &entry;
        }
        rows.push_back(json);
    }
    if (output.json)
        output.document({{"folder", folder.string()}, {"checkpoints", std::move(rows)}});
    else
        output.line(listed.empty() ? "no checkpoints in " + folder.string() : table(lines, 2));
    return verify == checkpoint::Verify::Digests && bad ? exitFor(bad->manifest.error().code) : Exit::Done;
}

Result<Exit> show(const std::string &what, Output &output)
{
    std::error_code error;
    std::filesystem::path folder = what;
    if (!std::filesystem::exists(folder / "MANIFEST.json", error)) {
        RY_ASSIGN(const auto parent, checkpointFolder(what));
        RY_ASSIGN(const auto found, checkpoint::newestCheckpoint(parent, checkpoint::Verify::Sizes));
        folder = found.folder;
    }
    RY_ASSIGN(const auto manifest, checkpoint::loadCheckpoint(folder, checkpoint::Verify::Sizes));
    const OrderedJson document = checkpoint::writeManifest(manifest);
    if (output.json)
        output.document(document);
    else
        output.line(dumpJson(document, 2));
    return Exit::Done;
}

} // namespace

void addCkpt(Commands &commands)
{
    CLI::App *ckpt = commands.root().add_subcommand("ckpt", "Checkpoints of runs");
    ckpt->require_subcommand(1);
    const auto with = [&](const char *name, const char *what,
                          std::function<Result<Exit>(const std::string &, Output &)> work) {
        auto run = std::make_shared<std::string>("last");
        commands.add(*ckpt, name, what, [run, work](Output &output) { return work(*run, output); })
            ->add_option("run", *run, "A run (id, beginning of it, \"last\") or a folder");
    };
    with("list", "Checkpoints with what is wrong with them",
         [](const std::string &run, Output &output) { return list(run, checkpoint::Verify::Sizes, output); });
    with("verify", "The same, every byte read against its digest",
         [](const std::string &run, Output &output) {
             return list(run, checkpoint::Verify::Digests, output);
         });
    with("show", "The manifest of the newest checkpoint, or of a step's folder", show);
}

} // namespace rankyard::ctl
