#!/bin/sh
# Patches a package in CI: looks at it, puts probes in, checks the result, proves that the original
# can be had back, and leaves all of it in one directory to upload.
#
#     patch-package.sh MODEL.pt2 OUTPUT_DIRECTORY [options of `rewriter instrument`]
#
# Exit codes are those of rewriter: 0 patched; 1 a finding (a call that is not recognised, or the
# package does not fit this machine); 2 the package or the options are wrong; 3 the toolchain failed.
#
# Written to OUTPUT_DIRECTORY:
#     launches.json      every launch of every model
#     doctor.json        what this machine lacks, if it lacks something; each check has its "error"
#     instrument.json    what was built and how; "check" is loaded, linked or skipped
#     MODEL.pt2          the package with probes
#     sources/           instead of it, where it cannot be built here: run sources/build.sh elsewhere
set -eu
if [ $# -lt 2 ]; then
    echo "usage: patch-package.sh MODEL.pt2 OUTPUT_DIRECTORY [options of rewriter instrument]" >&2
    exit 2
fi
package=$1
output=$2
shift 2
patched="$output/$(basename "$package")"
mkdir -p "$output"

rewriter list "$package" --strict --json > "$output/launches.json"

# 1: something is missing here. Without a GPU's toolchain the sources are still worth having.
status=0
rewriter doctor "$package" --json > "$output/doctor.json" || status=$?
if [ "$status" -eq 1 ]; then
    rewriter instrument "$package" --no-rebuild -o "$output/sources" --overwrite --json "$@" \
        > "$output/instrument.json"
    echo "not built here, see $output/doctor.json; sources: $output/sources" >&2
    exit 1
fi
[ "$status" -eq 0 ] || exit "$status"

rewriter instrument "$package" -o "$patched" --overwrite --json "$@" > "$output/instrument.json"

rewriter strip "$patched" -o "$output/restored.pt2" --overwrite
cmp "$package" "$output/restored.pt2"
rm "$output/restored.pt2"
echo "$patched"
