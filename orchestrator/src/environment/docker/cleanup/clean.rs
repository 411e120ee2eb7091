//! What a person may look at and remove, at any time.

use super::inventory::{EngineObject, find, kept_images};
use super::labels;
use super::sweep::remove;
use crate::environment::EnvironmentError;
use crate::environment::docker::engine::Engine;

/// Everything of rolltap's at the Docker engine, whoever's it is.
#[derive(Debug)]
pub struct Cleaner(Engine);

impl Cleaner {
    /// Finds the engine as jobs do.
    ///
    /// # Errors
    /// No engine.
    pub async fn connect() -> Result<Self, EnvironmentError> {
        Ok(Self(Engine::connect().await?))
    }

    /// What there is, in the order in which it can be removed; what is kept for later jobs is last.
    ///
    /// # Errors
    /// The engine's.
    pub async fn find(&self) -> Result<Vec<EngineObject>, EnvironmentError> {
        let list = EnvironmentError::engine("list what there is of rolltap");
        let listed = async {
            let mut found = find(&self.0, labels::ANY).await?;
            found.extend(find(&self.0, labels::SHARED_NETWORK).await?);
            found.extend(kept_images(&self.0).await?);
            Ok(found)
        };
        listed.await.map_err(list)
    }

    /// Removes one thing, whoever's it is. Fine if it is gone already.
    ///
    /// # Errors
    /// It is still there, as is an image that a container uses.
    pub async fn remove(&self, found: &EngineObject) -> Result<(), EnvironmentError> {
        let action = format!("remove {} {}", found.kind, found.name);
        remove(&self.0.api, found).await.map_err(EnvironmentError::engine(action))
    }
}
