#!/usr/bin/env bash
# Chromium for the tests of the page, from Debian where it is missing and can be had.
set -euo pipefail
command -v chromium > /dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium > /dev/null
fi
command -v chromium > /dev/null || echo "chromium is not installed: the tests of the page are left out (apt-get install chromium)"
