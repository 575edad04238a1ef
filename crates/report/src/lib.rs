//! The experiments of the papers as a table, their figures, and one page with both.
//!
//! An [`experiment::Experiment`] says what a paper claims, which runs of `hyades` try it, how they
//! are plotted and how they are judged. This crate runs nothing itself: [`plan`] says which
//! commands are wanted in which order, whoever runs them hands back what they printed, and
//! [`page`] makes one file of it that needs no other.
#![forbid(unsafe_code)]

pub mod axis;
pub mod chart;
pub mod data;
pub mod experiment;
pub mod judge;
pub mod metric;
pub mod page;
pub mod plan;
pub mod plot;
pub mod scale;
pub mod style;
pub mod svg;
pub mod table;
