#!/bin/sh
# need.sh TOOL...: sees to it that tools which this repository needs are there.
#
#   postgres  initdb and postgres, version 14 or later
#   node      node, version 18 or later, and npm
#   cc        a C compiler, for cgo, and sqlite3.h, which sqlite-vec is compiled with
#
# What is missing is installed by the system's package manager, which asks nothing.
# Where that cannot be done, the packages' names are printed and the exit status is 1.
set -eu

min_postgres=14
min_node=18

say() { printf 'need.sh: %s\n' "$*" >&2; }

# first_number TEXT: the first number in it, 0 without one.
first_number() {
	n=$(printf '%s\n' "$1" | sed -n '1s/^[^0-9]*\([0-9][0-9]*\).*/\1/p')
	echo "${n:-0}"
}

# The places are those where the program itself looks.
has_postgres() {
	in_path=$(command -v postgres || true)
	for bin in ${in_path:+"$(dirname "$in_path")"} /usr/lib/postgresql/*/bin /opt/homebrew/opt/postgresql*/bin \
		/usr/local/opt/postgresql*/bin /usr/pgsql-*/bin; do
		if [ -x "$bin/postgres" ] && [ -x "$bin/initdb" ] &&
			[ "$(first_number "$("$bin/postgres" --version 2>/dev/null)")" -ge "$min_postgres" ]; then
			return 0
		fi
	done
	return 1
}

has_node() {
	command -v npm >/dev/null 2>&1 &&
		[ "$(first_number "$(node --version 2>/dev/null)")" -ge "$min_node" ]
}

has_cc() {
	for compiler in "${CC:-}" gcc cc clang; do
		if [ -n "$compiler" ] && command -v "${compiler%% *}" >/dev/null 2>&1; then
			printf '#include <sqlite3.h>\n' | $compiler ${CGO_CFLAGS:-} -E -x c - >/dev/null 2>&1
			return
		fi
	done
	return 1
}

# as_root COMMAND...: runs it as root, or fails when that would take a password.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null 2>&1; then
		sudo -n "$@"
	else
		say "this needs root and there is no sudo: $*"
		return 1
	fi
}

updated=
apt_install() {
	if [ -z "$updated" ]; then
		say 'running: apt-get update'
		as_root apt-get update -q || say 'apt-get update failed; going on with the lists that are there'
		updated=yes
	fi
	say "running: apt-get install $*"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

# Debian's server package makes and starts a cluster "main" when it is installed,
# unless postgresql-common, which it depends on, was told before not to.
apt_postgres() {
	apt_install postgresql-common || return 1
	conf=/etc/postgresql-common/createcluster.conf
	if ! grep -Eq '^[[:space:]]*create_main_cluster[[:space:]]*=' "$conf" 2>/dev/null; then
		say "writing create_main_cluster = false to $conf, so that no server starts by itself"
		printf 'create_main_cluster = false\n' | as_root tee -a "$conf" >/dev/null || return 1
	fi
	apt_install postgresql
}

# install_by MANAGER TOOL
install_by() {
	case "$1 $2" in
	"apt postgres") apt_postgres ;;
	"apt node") apt_install nodejs npm ;;
	"apt cc") apt_install gcc libc6-dev libsqlite3-dev ;;
	"dnf postgres") dnf_install postgresql-server ;;
	"dnf node") dnf_install nodejs npm ;;
	"dnf cc") dnf_install gcc glibc-devel sqlite-devel ;;
	"brew postgres") brew_install "$(brew_postgres)" ;;
	"brew node") brew_install node ;;
	"brew cc")
		say 'install the command line tools of Xcode: xcode-select --install'
		return 1
		;;
	*) return 1 ;;
	esac
}

dnf_install() {
	say "running: dnf install $*"
	as_root dnf install -y "$@"
}

# brew refuses root, and installs for the user who runs it.
brew_install() {
	say "running: brew install $*"
	NONINTERACTIVE=1 brew install "$@"
}

# "postgresql" alone is an old alias; the newest formula has its version in its name.
brew_postgres() {
	newest=$(brew search --formula '/^postgresql@[0-9]+$/' 2>/dev/null | tr ' ' '\n' | sed -n 's/^postgresql@//p' | sort -n | tail -n 1)
	echo "postgresql@${newest:-17}"
}

packages_of() {
	case $1 in
	postgres) echo "PostgreSQL $min_postgres or later, server programs (Debian, Ubuntu: postgresql; Fedora, RHEL: postgresql-server; Homebrew: postgresql@17; Alpine, Arch: postgresql)" ;;
	node) echo "Node.js $min_node or later with npm (Debian, Ubuntu, Fedora, Alpine, Arch: nodejs npm; Homebrew: node; or https://nodejs.org)" ;;
	cc) echo "a C compiler and sqlite3.h (Debian, Ubuntu: gcc libc6-dev libsqlite3-dev; Fedora, RHEL: gcc glibc-devel sqlite-devel; Alpine: gcc musl-dev sqlite-dev; Arch: gcc sqlite; macOS: xcode-select --install)" ;;
	esac
}

manager=
for m in apt-get dnf brew; do
	if command -v "$m" >/dev/null 2>&1; then
		manager=${m%-get}
		break
	fi
done

if [ $# -eq 0 ]; then
	say 'usage: need.sh postgres|node|cc...'
	exit 2
fi

status=0
for tool in "$@"; do
	case $tool in
	postgres | node | cc) ;;
	*)
		say "unknown tool: $tool (there are postgres, node, cc)"
		exit 2
		;;
	esac
	if "has_$tool"; then
		continue
	fi
	if [ -n "$manager" ]; then
		say "$tool is missing; installing it with $manager"
		if install_by "$manager" "$tool" && "has_$tool"; then
			continue
		fi
	fi
	say "install by hand: $(packages_of "$tool")"
	status=1
done
exit "$status"
