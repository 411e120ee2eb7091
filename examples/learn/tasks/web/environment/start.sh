#!/bin/sh
grep -qx 'port=8080' web.conf || { echo "web.conf: port is not 8080"; exit 1; }
[ -d logs ] || { echo "logs: no such directory"; exit 1; }
echo up > logs/web.state
echo "web is up"
