#!/bin/sh
grep -qx 'workers=4' queue.conf || { echo "queue.conf: workers is not 4"; exit 1; }
[ -d spool ] || { echo "spool: no such directory"; exit 1; }
echo up > spool/queue.state
echo "queue is up"
