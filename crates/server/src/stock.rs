//! The files that configurations include and that come with every nginx: where one is not there, it is taken
//! from here. Boot and reload.

use clearway_conf::Stock;

/// The files by their names in the directory of the configuration.
pub(crate) const FILES: Stock = &[
    ("mime.types", include_str!("../stock/mime.types")),
    ("fastcgi_params", include_str!("../stock/fastcgi_params")),
    ("fastcgi.conf", include_str!("../stock/fastcgi.conf")),
    ("scgi_params", include_str!("../stock/scgi_params")),
    ("uwsgi_params", include_str!("../stock/uwsgi_params")),
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clearway_conf::{Loader, Memory};

    use super::*;

    /// Directives that the files may consist of.
    const DIRECTIVES: [&str; 5] = ["types", "fastcgi_param", "scgi_param", "uwsgi_param", "include"];

    #[test]
    fn the_files_are_found_where_there_are_none() {
        let path = Path::new("/etc/x/nginx.conf");
        for (name, text) in FILES {
            let source = Memory::new().with(path, format!("include {name};"));
            let mut loader = Loader::new(&source, path).with_stock(FILES);
            let tree = loader.file(path);
            assert!(tree.broken.is_none(), "{name}");
            let directives: Vec<_> = tree.directives.iter().map(|directive| directive.name.clone()).collect();
            assert!(directives.iter().all(|name| DIRECTIVES.iter().any(|known| name == known)), "{name}");
            assert_eq!(&loader.files()[1].text[..], text.as_bytes(), "it is among those that -T prints");
        }
    }

    #[test]
    fn a_script_is_all_that_fastcgi_conf_has_more() {
        let lines = |name: &str| {
            let (_, text) = FILES.iter().find(|(known, _)| *known == name).expect("it is there");
            text.lines().filter(|line| line.starts_with("fastcgi_param ")).collect::<Vec<_>>()
        };
        let (short, long) = (lines("fastcgi_params"), lines("fastcgi.conf"));
        assert_eq!(long[0], "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;");
        assert_eq!(long[1..], short);
    }
}
