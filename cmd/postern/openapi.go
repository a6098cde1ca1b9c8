package main

import (
	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/httpapi"
)

func openapiCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "openapi",
		Short: "Print the contract of the API (OpenAPI 3.1, YAML)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			document, err := httpapi.OpenAPI()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(document)
			return err
		},
	}
}
