//! Reads the source files checked for style rules.

use std::fs;
use std::path::{Path, PathBuf};

pub struct Source {
    /// Relative to the workspace root, with slashes.
    pub path: String,
    pub text: String,
}

/// The directories of the crates: the product, and the crates for comparison and proof.
pub const HOUSES: [&str; 2] = ["crates", "research"];

/// The workspace root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("a crate lies two levels deep").to_path_buf()
}

/// Adds all files below `dir` whose names end with one of `wanted`.
pub fn collect(dir: &Path, wanted: &[&str], out: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != ".git" {
                collect(&path, wanted, out);
            }
        } else if wanted.iter().any(|ending| name.ends_with(ending)) {
            let text = fs::read_to_string(&path).unwrap();
            let path = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            out.push(Source { path, text });
        }
    }
}
