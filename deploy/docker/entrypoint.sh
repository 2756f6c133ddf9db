#!/bin/sh
# Runs one service. The Redis password comes from a file, so that it is in no environment that `docker inspect` shows.
set -eu
if [ -n "${REDIS_PASSWORD_FILE:-}" ]; then
    PACS_REDIS_URL="redis://:$(cat "$REDIS_PASSWORD_FILE")@${REDIS_ADDRESS:-redis:6379}/0"
    export PACS_REDIS_URL
fi
exec pacs "$@"
