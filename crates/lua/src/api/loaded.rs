//! The modules that `require` finds without a file (`ngx`, `ndk`, `resty.core`), and a warning for globals
//! that code of requests makes.

use clearway_luajit::Fault;

use super::room::Install;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.run(include_str!("loaded.lua"), c"=loaded")?;
    install.run(include_str!("globals.lua"), c"=_G write guard")
}
