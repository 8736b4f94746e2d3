// The probes of a wrapper, by where they act.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "probe.h"
#include "texts.h"

namespace inductor_rewriter {

struct ChosenProbes {
  explicit ChosenProbes(const Options& options) {
    const std::string wanted = options.when;
    const bool only_written = options.args && !std::strcmp(options.args, "written");
    for (const std::string& name : split(options.probes, ",")) {
      std::unique_ptr<Probe> made = make_probe(name);
      if (!made) continue;
      Probe* const probe = made.get();
      all.push_back(std::move(made));
      saves = saves || probe->saves;
      acts_on_memory = acts_on_memory || probe->acts_on_memory;
      if (probe->acts_on_memory) continue;
      const bool checks = !std::strcmp(probe->when, "inputs");
      const bool is_fixed = checks || probe->spans || probe->marks || wanted.empty();
      const bool after_only = probe->of_results && only_written && wanted.empty();
      const std::string when = !is_fixed ? wanted : after_only ? "after" : probe->when;
      if (checks) checkers.push_back(probe);
      if (when == "before" || when == "both") before.push_back(probe);
      if (when == "after" || when == "both") after.push_back(probe);
      if (probe->reads_values && !checks) readers.push_back(probe);
      reads_values = reads_values || probe->reads_values;
      if (probe->marks) marker = probe->make_mark();
      observes = observes || name != "names";
    }
    if (!marker) return;
    marks_alone = before.empty();
    before.push_back(marker.get());  // the last thing before a launch
  }

  std::vector<std::unique_ptr<Probe>> all;
  Probes before, after, readers, checkers;
  bool reads_values = false;
  std::unique_ptr<Probe> marker;  // marks the beginning of launches
  bool marks_alone = false;       // whether it is the only probe that acts before launches
  bool observes = false;          // whether any probe needs what was measured
  bool saves = false;             // whether any needs a dump
  bool acts_on_memory = false;    // whether any does
};

}  // namespace inductor_rewriter
