//! `ndk.set_var`: directives of the set-misc module as functions.

use clearway_luajit::Fault;

use super::room::Install;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.run(include_str!("ndk.lua"), c"=ndk")
}
