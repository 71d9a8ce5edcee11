#!/bin/sh
# The plan without a runner: any script or slash command can keep its place with a few calls. Give the same line again.
set -e
holdfast=${HOLDFAST:-holdfast}
$holdfast begin plan.md --resume -q > /dev/null
for phase in $($holdfast status --left); do
    $holdfast phase start "$phase" -q
    echo "$phase" >> calls.log
    if [ "$phase" = "$FAILS" ]; then
        $holdfast phase fail "$phase" --error "it was told to" -q
        exit 1
    fi
    $holdfast phase done "$phase" --summary "$phase is done" -q
done
