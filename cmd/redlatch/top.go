package main

import "github.com/spf13/cobra"

func (a *app) topCommand() *cobra.Command   { return &cobra.Command{Use: "top"} }
func (a *app) serveCommand() *cobra.Command { return &cobra.Command{Use: "serve"} }
