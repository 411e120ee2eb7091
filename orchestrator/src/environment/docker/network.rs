//! The networks of containers, and the network access of each container.

pub(super) mod access;
pub(super) mod egress;
pub(super) mod forward;
pub(super) mod isolation;
pub(super) mod shared;
