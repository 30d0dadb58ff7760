#!/usr/bin/env bash
# Take the libraries of asv's pages anew from their npm packages, at the versions that asv asks for.
set -euo pipefail
vendor="$(cd "$(dirname "$0")/.." && pwd)/harness/site/vendor"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

take() { # package version file...
  local package="$1" version="$2" file
  shift 2
  (cd "$scratch" && npm pack --silent "$package@$version" >/dev/null)
  mkdir -p "$scratch/$package" "$vendor/$package"
  tar xzf "$scratch/$package-$version.tgz" -C "$scratch/$package" --strip-components=1
  for file in "$@" $(cd "$scratch/$package" && ls | grep -i '^license' || true); do
    cp "$scratch/$package/$file" "$vendor/$package/"
  done
}

take jquery 3.3.1 dist/jquery.min.js
take flot 0.8.3 jquery.flot.js jquery.flot.time.js jquery.flot.selection.js jquery.flot.categories.js
take flot-orderbars 1.0.0 js/jquery.flot.orderBars.js
take stupid-table-plugin 1.1.3 stupidtable.min.js # asv asks for 1.0.1, which npm does not have
take blueimp-md5 2.19.0 js/md5.min.js
take bootstrap 3.1.1 dist/js/bootstrap.min.js dist/css/bootstrap.min.css
mkdir -p "$vendor/fonts"
cp "$scratch/bootstrap/dist/fonts/glyphicons-halflings-regular.woff" "$vendor/fonts/"
