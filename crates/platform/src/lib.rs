//! The operating system, behind one door: files, clock, threads, randomness, synchronisation.
