//! The experiments of the papers as a table, the figures, and a page with both.
//!
//! An [`experiment::Experiment`] has the claim of a paper, the runs of `hyades-lab` that test the
//! claim, the plots of the runs and the checks. This crate runs nothing itself: [`plan`] lists the
//! commands to run, the caller supplies the output as [`data`], and [`page`] makes a single
//! self-contained HTML file.
#![forbid(unsafe_code)]

pub mod axis;
pub mod chart;
pub mod checks;
pub mod data;
pub mod definition;
pub mod docs;
pub mod experiment;
pub mod judge;
pub mod metric;
pub mod page;
pub mod plan;
pub mod plot;
pub mod reasons;
pub mod scale;
pub mod style;
pub mod svg;
pub mod table;
