//! Lists and removes rolltap's objects at the engine, at any time and for any job.

use super::inventory::{EngineObject, find, kept_images};
use super::labels;
use super::sweep::remove;
use crate::environment::EnvironmentError;
use crate::environment::docker::engine::Engine;

/// A list of all objects of rolltap at the Docker engine, of every job.
#[derive(Debug)]
pub struct Cleaner(Engine);

impl Cleaner {
    /// Connects to the engine as jobs do.
    ///
    /// # Errors
    /// No engine answers.
    pub async fn connect() -> Result<Self, EnvironmentError> {
        Ok(Self(Engine::connect().await?))
    }

    /// Returns the objects in the order in which they can be removed. The images for later jobs are last.
    ///
    /// # Errors
    /// The engine cannot list its objects.
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

    /// Removes one object of any job. Succeeds if it is gone already.
    ///
    /// # Errors
    /// The object is still there, such as an image that a container uses.
    pub async fn remove(&self, found: &EngineObject) -> Result<(), EnvironmentError> {
        let action = format!("remove {} {}", found.kind, found.name);
        remove(&self.0.api, found).await.map_err(EnvironmentError::engine(action))
    }
}
