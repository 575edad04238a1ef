//! Copies of a store's files as a killed process leaves them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// The bytes of a piece in the copying of a file with reserved room at the end, up to the first
/// empty piece.
const PIECE: usize = 64 << 10;

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (mut from, mut to, mut piece) = (File::open(from)?, File::create(to)?, vec![0; PIECE]);
    let len = from.metadata()?.len();
    loop {
        let read = from.read(&mut piece)?;
        if piece[..read].iter().all(|byte| *byte == 0) {
            return to.set_len(len);
        }
        to.write_all(&piece[..read])?;
    }
}

/// Copies a directory. The files with names in `first` come first, in this order; the rest of a
/// file ending in `reserving` is room reserved by the store.
pub(super) fn copy_all(from: &Path, to: &Path, first: &[&str], reserving: &str) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    let rank = |name: &str| first.iter().position(|first| name.starts_with(first));
    let mut entries: Vec<_> = std::fs::read_dir(from)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(|entry| rank(&entry.file_name().to_string_lossy()).unwrap_or(first.len()));
    for entry in entries {
        let to = to.join(entry.file_name());
        let copied = match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &to, first, reserving),
            false if entry.path().extension().is_some_and(|end| end == reserving) => {
                copy_file(&entry.path(), &to)
            }
            false => std::fs::copy(entry.path(), to).map(drop),
        };
        // The process goes on, and has removed or renamed a temporary file.
        copied.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
    }
    Ok(())
}
