//! What the fuzz targets do: each takes operations and bytes of any kind, and holds the real thing to a plain model of it.

mod moment;
pub mod shard;
pub mod wheel;

#[allow(dead_code, clippy::pedantic, reason = "a part of an example, which uses more of it")]
#[path = "../../examples/ttl_cache/input.rs"]
mod input;
#[allow(dead_code, clippy::pedantic, reason = "a part of an example, which uses more of it")]
#[path = "../../examples/ttl_cache/reply.rs"]
mod reply;
#[allow(dead_code, clippy::pedantic, reason = "a part of an example, which uses more of it")]
#[path = "../../examples/ttl_cache/resp.rs"]
mod resp;

pub mod commands;
