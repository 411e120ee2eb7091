//! The networks of containers, and what each container may reach.

pub(super) mod access;
pub(super) mod egress;
pub(super) mod forward;
pub(super) mod isolation;
pub(super) mod shared;
