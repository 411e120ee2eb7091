//! Containers that remain after their trials (`delete: false`), as images from which other containers start.

use std::collections::HashMap;

use bollard::models::ContainerConfig;
use bollard::query_parameters::{CommitContainerOptionsBuilder, ListContainersOptions, RemoveImageOptions};
use uuid::Uuid;

use super::DockerHost;
use super::cleanup::labels::{KEPT_CONTAINER, TRIAL, of_kept_image};
use super::cleanup::sweep::tolerate;
use super::image::Image;
use crate::environment::EnvironmentError;
use crate::task::Task;

/// The repository of images that are made of remaining containers.
const REPOSITORY: &str = "rolltap-regrade";

impl DockerHost {
    /// Returns the id of the container that remains of a trial, or `None` if there is none.
    pub(in crate::environment) async fn kept(&self, trial: &str) -> Result<Option<String>, EnvironmentError> {
        let labels = vec![KEPT_CONTAINER.to_owned(), format!("{TRIAL}={trial}")];
        let filters = Some(HashMap::from([("label".to_owned(), labels)]));
        let options = ListContainersOptions { all: true, filters, ..ListContainersOptions::default() };
        let found = self.job.engine.api.list_containers(Some(options)).await;
        let found =
            found.map_err(EnvironmentError::engine(format!("look for the container of trial {trial}")))?;
        Ok(found.into_iter().find_map(|container| container.id))
    }

    /// Makes an image of the files of a remaining container, which does not change. The image has the labels of images
    /// that `rolltap clean` removes, in case that this process dies before [`Self::discard`].
    pub(in crate::environment) async fn snapshot(
        &self,
        container: &str,
        task: &Task,
    ) -> Result<Image, EnvironmentError> {
        let tag = Uuid::now_v7().simple().to_string();
        let options =
            CommitContainerOptionsBuilder::default().container(container).repo(REPOSITORY).tag(&tag);
        let config =
            ContainerConfig { labels: Some(of_kept_image(&task.name)), ..ContainerConfig::default() };
        let committed = self.job.engine.api.commit_container(options.build(), config).await;
        committed.map_err(EnvironmentError::engine(format!("make an image of container {container}")))?;
        let name = format!("{REPOSITORY}:{tag}");
        match self.job.find(&name).await? {
            Some(facts) => Ok(self.job.image_of(task, facts)),
            None => Err(EnvironmentError::NotReady(format!("image {name} is gone after it was made"))),
        }
    }

    /// Removes an image of [`Self::snapshot`].
    pub(in crate::environment) async fn discard(&self, image: &Image) -> Result<(), EnvironmentError> {
        let name = &image.facts.name;
        let options = RemoveImageOptions { force: true, ..RemoveImageOptions::default() };
        let removed = self.job.engine.api.remove_image(name, Some(options), None).await;
        tolerate(removed.map(drop), &[404]).map_err(EnvironmentError::engine(format!("remove image {name}")))
    }
}
