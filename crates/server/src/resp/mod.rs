//! Redis's protocol: requests, replies and the text form of numbers.

pub mod inline;
pub mod number;
pub mod reply;
pub mod request;
