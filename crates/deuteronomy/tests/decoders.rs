//! Promise: no input makes the decoder of records panic. Inputs are the files in `fuzz/corpus` and
//! random changes of sound inputs.
#![allow(missing_docs)]

use hyades_deuteronomy::fuzzing::{component_record, component_record_seeds};
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

fn directory() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    root.join("fuzz/corpus/component_record")
}

fn run(input: &[u8]) {
    assert!(catch_unwind(|| component_record(input)).is_ok(), "it panicked on {input:02x?}");
}

#[test]
#[ignore = "writes to fuzz/corpus: for when the format or the sound inputs have changed"]
fn keep_the_sound_inputs() {
    fs::create_dir_all(directory()).unwrap();
    for (n, seed) in component_record_seeds().iter().enumerate() {
        fs::write(directory().join(format!("sound-{n:02}")), seed).unwrap();
    }
}

#[test]
fn no_bytes_make_the_reader_of_records_panic() {
    let kept = fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> = kept.map(|path| fs::read(path).unwrap()).collect();
    let seeds = component_record_seeds();
    assert!(kept.len() >= seeds.len());
    kept.iter().chain(&seeds).for_each(|input| run(input));
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..20_000 {
        let mut input = seeds[rng.usize(..seeds.len())].clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..=input.len());
            match rng.u8(0..5) {
                0 => input.truncate(at.max(1)),
                1 => input.insert(at, rng.u8(..)),
                2 => drop(input.drain(at..(at + rng.usize(..9)).min(input.len()))),
                3 => input[at..].iter_mut().take(9).for_each(|byte| *byte = 0xff),
                _ if at < input.len() => input[at] ^= 1 << rng.u8(..8),
                _ => {}
            }
        }
        run(&input);
    }
}
