//! The proxy: the agent plane that agents call, the admin plane that trainers and runners call, what is kept of the
//! calls between them, and a vLLM-shaped simulator.

pub mod api;
pub mod sim;
