#!/bin/sh
# modules/install.sh BUILD PREFIX: the program, its jobs, the man page and both module files, for `make install`.
#   MODULES="gcc/12 openmpi/4.1"   what the module requires; otherwise the modules that are loaded now
set -eu
build=$1
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$2"
prefix=$(cd "$2" && pwd)
# These would mean something to sed.
case $prefix in *[\|\&\\]*) echo "install: give a PREFIX without | & and \\, not $prefix" >&2; exit 2 ;; esac
share=$prefix/share/annulus/slurm

cmake --install "$build" --prefix "$prefix" >/dev/null
mkdir -p "$share/smoke-model" "$prefix/share/man/man1" "$prefix/modulefiles/annulus"
for file in "$here"/slurm/*; do
  case $file in
    */site.sh) [ -e "$share/site.sh" ] || cp "$file" "$share/" ;;  # the site's own from now on
    */smoke-model) cp "$file"/* "$share/smoke-model/" ;;
    *) cp "$file" "$share/" ;;
  esac
done
cp "$here/modules/annulus.1" "$prefix/share/man/man1/"

version=$("$prefix/bin/annulus" --version | cut -d ' ' -f 2)
tcl='' lua=''
for module in ${MODULES-$(echo "${LOADEDMODULES:-}" | tr ':' ' ')}; do
  [ "${module%%/*}" != annulus ] || continue
  tcl="${tcl}depends-on $module\\n"
  lua="${lua}depends_on(\"$module\")\\n"
done
fill() {
  sed "s|@VERSION@|$version|g; s|@PREFIX@|$prefix|g; s|@REQUIRES_TCL@|$tcl|; s|@REQUIRES_LUA@|$lua|" \
    "$here/modules/$1" | cat -s >"$prefix/modulefiles/annulus/$2"
}
fill annulus.tcl.in "$version"
fill annulus.lua.in "$version.lua"
echo "installed annulus $version; its module: module use $prefix/modulefiles && module load annulus"
