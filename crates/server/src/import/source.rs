//! The files of Redis for an import: one file, or the files in the manifest of a directory of
//! append-only files, the base first.

use crate::rdb::crc64;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The ending of the name of a manifest.
const MANIFEST: &str = ".manifest";

/// Bytes of each file that count for the identity of an import.
const KNOWN_BY: u64 = 4 << 10;

/// A file.
#[derive(Debug)]
pub struct SourceFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The length in bytes.
    pub length: u64,
}

/// All files of an import.
#[derive(Debug)]
pub struct ImportSource {
    /// The files in their order.
    pub files: Vec<SourceFile>,
    /// The identity by which an import recognises the files.
    pub identity: u64,
}

impl SourceFile {
    fn new(path: PathBuf) -> Result<SourceFile, String> {
        let metadata = std::fs::metadata(&path).map_err(|error| failed(&path, &error))?;
        if !metadata.is_file() {
            return Err(format!("{} is no file", path.display()));
        }
        Ok(SourceFile { path, length: metadata.len() })
    }

    /// Opens the file.
    ///
    /// # Errors
    /// The file cannot be read, in a sentence.
    pub fn open(&self) -> Result<File, String> {
        File::open(&self.path).map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be read: {error}", path.display())
}

/// The value behind a word of a line of a manifest.
fn word<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let at = words.iter().step_by(2).position(|word| *word == name)?;
    words.get(2 * at + 1).copied()
}

/// The files of a manifest: base and increments; files of an earlier time are left out.
fn of_manifest(manifest: &Path) -> Result<Vec<SourceFile>, String> {
    let dir = manifest.parent().unwrap_or(Path::new("."));
    let (mut base, mut increments) = (None, Vec::new());
    let lines = BufReader::new(File::open(manifest).map_err(|error| failed(manifest, &error))?);
    for (number, line) in lines.lines().enumerate() {
        let line = line.map_err(|error| failed(manifest, &error))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        let (name, kind) = (word(&words, "file"), word(&words, "type"));
        let order = word(&words, "seq").and_then(|text| text.parse::<u64>().ok());
        let (Some(name), Some(order), Some(kind)) = (name, order, kind) else {
            let place = format!("{}, line {}", manifest.display(), number + 1);
            return Err(format!("{place}: \"file NAME seq N type b|i|h\" is expected"));
        };
        if name.contains('/') {
            return Err(format!("{}: {name} is not a name of a file there", manifest.display()));
        }
        match kind {
            "b" => base = Some(SourceFile::new(dir.join(name))?),
            "i" => increments.push((order, SourceFile::new(dir.join(name))?)),
            _ => {}
        }
    }
    increments.sort_by_key(|(order, _)| *order);
    Ok(base.into_iter().chain(increments.into_iter().map(|(_, file)| file)).collect())
}

impl ImportSource {
    /// The files named by a path: a file, a manifest, or a directory with a manifest.
    ///
    /// # Errors
    /// A description of the missing part, in a sentence.
    pub fn find(path: &Path) -> Result<ImportSource, String> {
        let is_manifest = |path: &Path| path.to_string_lossy().ends_with(MANIFEST);
        let files = if path.is_dir() {
            let all = std::fs::read_dir(path).map_err(|error| failed(path, &error))?;
            let mut all = all.filter_map(|entry| entry.ok().map(|entry| entry.path()));
            let manifest = all.find(|path| is_manifest(path)).ok_or_else(|| {
                let path = path.display();
                format!("{path} has no manifest of append-only files: name a file in it instead")
            })?;
            of_manifest(&manifest)?
        } else if is_manifest(path) {
            of_manifest(path)?
        } else {
            vec![SourceFile::new(path.to_path_buf())?]
        };
        if files.is_empty() {
            return Err(format!("{} names no files", path.display()));
        }
        let mut known_by = Vec::new();
        for file in &files {
            known_by.extend(file.length.to_le_bytes());
            let head = file.open()?.take(KNOWN_BY).read_to_end(&mut known_by);
            head.map_err(|error| failed(&file.path, &error))?;
        }
        Ok(ImportSource { files, identity: crc64(&known_by) })
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.length).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_base_and_increments_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let text = "file a.1.base.rdb seq 1 type b\n# more\nfile a.10.incr.aof seq 10 type i\n\
                    file a.0.incr.aof seq 0 type h\nfile a.2.incr.aof seq 2 type i startoffset 0\n";
        std::fs::write(dir.path().join("a.manifest"), text).unwrap();
        for name in ["a.1.base.rdb", "a.10.incr.aof", "a.2.incr.aof"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let source = ImportSource::find(dir.path()).unwrap();
        let names = source.files.iter().map(|file| file.path.file_name().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["a.1.base.rdb", "a.2.incr.aof", "a.10.incr.aof"]);
        assert_eq!(source.bytes(), 37);
        let other = ImportSource::find(&dir.path().join("a.manifest")).unwrap();
        assert_eq!(other.identity, source.identity);
        std::fs::write(dir.path().join("a.2.incr.aof"), "changed").unwrap();
        assert_ne!(ImportSource::find(dir.path()).unwrap().identity, source.identity);
        for (text, expected) in [
            ("file a seq 1\n", "line 1: \"file NAME seq N type b|i|h\" is expected"),
            ("file ../a seq 1 type b\n", "../a is not a name of a file there"),
            ("file a seq 1 type b\n", "cannot be read"),
            ("\n", "names no files"),
        ] {
            std::fs::write(dir.path().join("a.manifest"), text).unwrap();
            let error = ImportSource::find(dir.path()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
