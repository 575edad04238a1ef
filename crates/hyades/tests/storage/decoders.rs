//! Promise: no input makes a decoder panic. Inputs are the inputs kept in `fuzz/corpus` and random
//! changes of valid inputs.

#[path = "../decoding/mod.rs"]
mod decoding;
use decoding::{TARGETS, Target};
use hyades_platform::random::Random;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

fn directory(target: &Target) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    root.join("fuzz/corpus").join(target.name)
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(directory(target)).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn run(target: &Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        panic!("{} panicked on {input:02x?}", target.name);
    }
}

/// Makes one to four changes: bits, bytes, extreme values, deletions, truncations, repetitions.
fn change(input: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(input.len() as u64 + 1) as usize;
        let length = random.below(9) as usize;
        let end = (at + length).min(input.len());
        match random.below(7) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.below(256) as u8,
            2 => random.fill(&mut input[at..end]),
            3 => input[at..end].fill(if length.is_multiple_of(2) { 0xff } else { 0 }),
            4 => drop(input.drain(at..end)),
            5 => input.truncate(at.max(1)),
            _ => {
                let piece = input[at..end].to_vec();
                let to = random.below(input.len() as u64 + 1) as usize;
                input.splice(to..to, piece);
            }
        }
    }
}

/// Runs the kept inputs, the valid inputs, and `rounds` random changes of valid inputs.
fn no_bytes_panic(name: &str, rounds: u32) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target's name");
    let kept = corpus(target);
    assert!(!kept.is_empty(), "{name} has kept inputs");
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{name} has sound inputs");
    kept.iter().chain(&seeds).for_each(|input| run(target, input));
    let mut random = Random::seeded(5);
    for _ in 0..rounds {
        let mut input = seeds[random.below(seeds.len() as u64) as usize].clone();
        change(&mut input, &mut random);
        run(target, &input);
    }
}

#[test]
#[ignore = "writes to fuzz/corpus: for when the format or the sound inputs have changed"]
fn keep_the_sound_inputs() {
    for target in &TARGETS {
        fs::create_dir_all(directory(target)).unwrap();
        for (n, seed) in (target.seeds)().iter().enumerate() {
            fs::write(directory(target).join(format!("sound-{n:02}")), seed).unwrap();
        }
    }
}

#[test]
fn segment_pieces() {
    no_bytes_panic("pieces", 20_000);
}

#[test]
fn manifests() {
    no_bytes_panic("manifest", 10_000);
}

#[test]
fn streams() {
    no_bytes_panic("stream", 3_000);
}

#[test]
fn catalogues() {
    no_bytes_panic("catalogue", 10_000);
}

#[test]
fn rows() {
    no_bytes_panic("row", 20_000);
}

#[test]
fn records() {
    no_bytes_panic("record", 10_000);
}

#[test]
fn whole_databases() {
    no_bytes_panic("replay", 100);
}
