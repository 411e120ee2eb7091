#!/bin/sh
# The service runs as it was asked for: then the reward is 1. The other numbers say how far it came.
cd /app || exit 1
configured=0 directory=0 executable=0 up=0
grep -qx 'workers=4' queue.conf && configured=1
[ -d spool ] && directory=1
[ -x run.sh ] && executable=1
[ "$(cat spool/queue.state 2>/dev/null)" = up ] && up=1
reward=$((configured * directory * executable * up))
echo "{\"reward\": $reward, \"configured\": $configured, \"directory\": $directory, \"executable\": $executable, \"up\": $up}" \
    > /logs/verifier/reward.json
