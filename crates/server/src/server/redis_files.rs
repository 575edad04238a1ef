//! Files of Redis in the directory of the data: not read, and left alone. A line says so, and how
//! to move the data: this server was started in the place of Redis.

use crate::config::Settings;
use std::path::Path;

/// The files of Redis in `dir`, in words.
pub fn notice(settings: &Settings) -> Option<String> {
    let dir = settings.dir();
    let mut names = settings.names_of_redis().to_vec();
    names.retain(|name| is_there(&dir, name));
    let last = names.pop()?;
    let names = match names.is_empty() {
        true => last,
        false => format!("{} and {last}", names.join(", ")),
    };
    Some(format!(
        "{} has files of Redis ({names}), which are not read and stay as they are: this database \
         is empty. To move the data, stop this server, and bring them into a new directory: \
         hyades import FILE --dir NEW (docs/server/differences.md, \"Files of Redis\")",
        dir.display()
    ))
}

/// Whether a directory has a file of this name, and the name is no path to another place.
fn is_there(dir: &Path, name: &str) -> bool {
    let is_name = Path::new(name).file_name().is_some_and(|file| file == name);
    is_name && dir.join(name).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_redis_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().to_str().unwrap();
        let read = |more: &[&str]| {
            let arguments = [&["--dir", name][..], more].concat();
            notice(&Settings::from_arguments(&arguments).unwrap())
        };
        assert_eq!(read(&[]), None);
        std::fs::write(dir.path().join("dump.rdb"), "REDIS0010").unwrap();
        let one = read(&[]).unwrap();
        assert!(one.starts_with(&format!("{name} has files of Redis (dump.rdb), ")), "{one}");
        assert!(one.contains("hyades import"), "{one}");
        std::fs::create_dir(dir.path().join("appendonlydir")).unwrap();
        assert!(read(&[]).unwrap().contains(" (dump.rdb and appendonlydir), "));
        // By the names in the settings.
        let none = ["--dbfilename", "x.rdb", "--appenddirname", "", "--appendfilename", "/"];
        assert_eq!(read(&none), None);
    }
}
