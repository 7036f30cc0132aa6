//! From the path of a request to the path of a file: `root` and `alias`. Pure functions on the
//! request; nothing here touches a file.

use std::borrow::Cow;

use clearway_site::RootKind;

use crate::output::view::View;
use crate::request::AliasTail;

/// The directory of `root` or `alias` (`$document_root`), absolute.
pub fn document_root<'c>(view: &View<'_, 'c>) -> Cow<'c, [u8]> {
    let root = view.request.location().root();
    let path = root.path.eval(view);
    if path.first() == Some(&b'/') {
        return path;
    }
    // It begins with a variable whose value is relative.
    [view.request.prefix(), &path].concat().into()
}

/// The file for the path of the request (`$request_filename`).
pub fn file_path(view: &View<'_, '_>) -> Vec<u8> {
    file_path_of(view, view.request.path())
}

/// The file for another path in the same location.
pub fn file_path_of(view: &View<'_, '_>, path: &[u8]) -> Vec<u8> {
    let root = document_root(view);
    let rest = match view.request.location().root().kind {
        RootKind::Root => path,
        RootKind::Alias(name_len) => path.get(name_len..).unwrap_or_default(),
        RootKind::AliasWhole if view.request.alias_tail() == AliasTail::Path => path,
        RootKind::AliasWhole => &[],
    };
    let mut file = Vec::with_capacity(root.len() + rest.len());
    file.extend_from_slice(&root);
    file.extend_from_slice(rest);
    file
}
